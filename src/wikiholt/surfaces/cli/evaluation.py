"""`wikiholt eval`."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wikiholt.errors import InvalidEvaluation, InvalidSetting
from wikiholt.evaluating import MINED_KINDS, SearchFunction, QuestionKind, Question, EvaluationRun, run_evaluation, sample_questions
from wikiholt.evaluating.report import RunComparison, EvaluationReport
from wikiholt.model import SearchResult, SearchMode
from wikiholt.search import SearchRequest
from wikiholt.service import WikiService
from wikiholt.settings import SETTINGS
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import print_result
from wikiholt.surfaces.cli.evaluation_lines import format_evaluation
from wikiholt.surfaces.cli.evaluation_page import render_evaluation
from wikiholt.surfaces.cli.sheet import write_html_file
from wikiholt.surfaces.documents.evaluation import build_evaluation_document
from wikiholt.wiring import open_evaluation_handle

ServiceBuilder = Callable[[Mapping[str, str]], WikiService]
"""Builds the service that these settings, beside those of the command, describe."""
_CACHE_TIMEOUT_S = 600.0
_SECRET_SETTINGS = frozenset(setting.name for setting in SETTINGS if setting.secret)


def run_eval(service: WikiService, arguments: Namespace, build_service: ServiceBuilder) -> int:
    """Ask a wiki what it should know and say how well it answers; nothing of the wiki or its index is changed."""
    _check_arguments(arguments)
    slug, modes = arguments.slug, [SearchMode(mode) for mode in dict.fromkeys(arguments.mode)] or list(SearchMode)
    questions, revision, available = _load_questions(service, arguments)
    with ExitStack() as stack:
        ask = stack.enter_context(_open_search(service, slug, questions, modes))
        runs = [_run_questions(str(mode), mode, questions, ask, arguments) for mode in modes]
        comparison = None
        if arguments.against:
            theirs = _run_comparison(stack, service, arguments, build_service, runs, ask)
            comparison = RunComparison.from_runs(runs[0], theirs, arguments.seed, arguments.worst)
    found = EvaluationReport(slug, revision, arguments.seed, available, tuple(runs), comparison, arguments.worst)
    if arguments.html:
        write_html_file(arguments.html, render_evaluation(found))
    lines = format_evaluation(found, output.TerminalStyle.from_stream(sys.stdout))
    return print_result(arguments, build_evaluation_document(found), [*lines, *_format_written(arguments)])


def _check_arguments(arguments: Namespace) -> None:
    if bool(arguments.queries) != bool(arguments.qrels):
        raise InvalidEvaluation("queries and judgements belong together", hint="give both --queries and --qrels")
    if arguments.queries and arguments.kind:
        raise InvalidEvaluation("--kind chooses among mined questions", hint="leave it out, or --queries and --qrels")
    for name, least in (("limit", 1), ("worst", 0)):
        if not least <= getattr(arguments, name) <= 10_000:
            raise InvalidEvaluation(f"--{name} is {getattr(arguments, name)}", hint=f"use {least} to 10000")


def _load_questions(service: WikiService, arguments: Namespace) -> tuple[list[Question], str | None, dict[QuestionKind, int]]:
    handle = service.get_handle(arguments.slug)
    if not arguments.queries:
        mined = handle.mine_questions([QuestionKind(kind) for kind in arguments.kind] or MINED_KINDS, arguments.limit, arguments.seed)
        return list(mined.questions), mined.revision, dict(mined.available)
    found = handle.load_judged_questions(_read_lines(arguments.queries), _read_lines(arguments.qrels))
    if not found:
        raise InvalidEvaluation("no query has a relevant page", hint="give judgements with grades above 0 in --qrels")
    state = handle.get_status().state
    chosen = sample_questions(found, arguments.limit, arguments.seed)
    return chosen, state.revision if state else None, {QuestionKind.LABELLED: len(found)}


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidEvaluation(f"{file.name} cannot be read ({why})", hint="name a file of text") from None


@contextmanager
def _open_search(service: WikiService, slug: str, questions: Sequence[Question], modes: Sequence[SearchMode]) -> Iterator[SearchFunction]:
    """Asks the wiki; what a question was taken from does not help to answer it."""
    if any(mode is not SearchMode.KEYWORD for mode in modes):
        service.components.embedder()  # without it hybrid search goes by words alone, and its figures would mislead
        if service.components.reranking is not None:
            service.components.reranking.get_reranker()
    handle = service.get_handle(slug)
    handle.wait_for_caches(_CACHE_TIMEOUT_S)
    with ExitStack() as stack:
        blind = handle
        if any(question.kind is QuestionKind.DESCRIPTIONS for question in questions):
            blind = open_evaluation_handle(service, slug, questions)
            stack.callback(blind.close)

        def search_for(question: Question, request: SearchRequest) -> SearchResult:
            return (blind if question.kind is QuestionKind.DESCRIPTIONS else handle).search(request)

        yield search_for


def _run_questions(label: str, mode: SearchMode, questions: Sequence[Question], search: SearchFunction, arguments: Namespace) -> EvaluationRun:
    if sys.stderr.isatty() and not arguments.json:
        sys.stderr.write(f"asking {output.format_count(len(questions), 'question')}: {label}\n")
    return run_evaluation(label, mode, questions, search)


def _run_comparison(
    stack: ExitStack,
    service: WikiService,
    arguments: Namespace,
    build_service: ServiceBuilder,
    runs: Sequence[EvaluationRun],
    search: SearchFunction,
) -> EvaluationRun:
    """The other configuration: another mode, or the same mode with other settings."""
    modes = [each for each in arguments.against if "=" not in each]
    if unknown := [each for each in modes if each not in list(SearchMode)] or modes[1:]:
        raise InvalidSetting(
            f"--against {unknown[0]!r} makes no configuration", hint="give one mode, or NAME=VALUE for a setting"
        )
    settings = dict(each.split("=", 1) for each in arguments.against if "=" in each)
    mode = SearchMode(modes[0]) if modes else runs[0].mode
    questions = [outcome.question for outcome in runs[0].outcomes]
    label = " ".join([str(mode), *(f"{name}={'…' if name in _SECRET_SETTINGS else value}" for name, value in settings.items())])
    if settings:
        if "data" in settings and "store" not in settings and service.components.databases is not None:
            raise InvalidSetting(
                "the index lies in a database, whatever the data directory is",
                hint="name the other database with --against store=…, or --against store= for an index in files",
            )
        other = build_service(settings)
        stack.callback(other.close)
        _check_comparable(service, other, arguments.slug, questions)
        search = stack.enter_context(_open_search(other, arguments.slug, questions, [mode]))
    elif known := next((run for run in runs if run.mode is mode), None):
        return known
    elif mode is not SearchMode.KEYWORD:
        service.components.embedder()
    return _run_questions(label, mode, questions, search, arguments)


def _check_comparable(service: WikiService, other: WikiService, slug: str, questions: Sequence[Question]) -> None:
    """Refuse settings that only another index could show, and an index of another wiki."""
    in_files = service.components.databases is None
    place, place_setting = ("data directory", "data=DIR") if in_files else ("database", "store=…")
    if other.get_handle(slug).get_indexed_revision() is None and service.get_handle(slug).get_indexed_revision() is not None:
        raise InvalidSetting(
            "with these settings the index would have to be built anew",
            hint=f"build it in a {place} of its own, and compare with --against {place_setting}",
        )
    known = {page.path for page in other.get_handle(slug).pages.list().pages}
    if missing := next((path for each in questions for path in each.relevant if path not in known), None):
        raise InvalidEvaluation(
            f"the other index lacks the page {missing!r}", hint="sync both indexes with the same repository"
        )


def _format_written(arguments: Namespace) -> list[str]:
    return [f"Report: {output.to_safe_line(str(arguments.html))}"] if arguments.html else []
