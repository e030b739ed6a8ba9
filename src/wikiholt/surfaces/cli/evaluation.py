"""`wikiholt eval`."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wikiholt.errors import InvalidEvaluation, InvalidSetting
from wikiholt.evaluating import MINED, Ask, Kind, Question, Run, run, sampled
from wikiholt.evaluating.report import Comparison, Evaluation
from wikiholt.model import Answer, Mode
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import SETTINGS
from wikiholt.surfaces.cli import output
from wikiholt.surfaces.cli.commands import show
from wikiholt.surfaces.cli.evaluation_lines import evaluation_lines
from wikiholt.surfaces.cli.evaluation_page import evaluation_page
from wikiholt.surfaces.cli.sheet import write_sheet
from wikiholt.surfaces.documents.evaluation import evaluation_document
from wikiholt.wiring import without_answers

Another = Callable[[Mapping[str, str]], Service]
"""Builds the service that these settings, beside those of the command, describe."""
_PATIENCE = 600.0
_SECRETS = frozenset(setting.name for setting in SETTINGS if setting.secret)


def evaluate(service: Service, arguments: Namespace, another: Another) -> int:
    """Ask a wiki what it should know and say how well it answers; nothing of the wiki or its index is changed."""
    _check(arguments)
    slug, modes = arguments.slug, [Mode(mode) for mode in dict.fromkeys(arguments.mode)] or list(Mode)
    questions, revision, available = _questions(service, arguments)
    with ExitStack() as stack:
        ask = stack.enter_context(_asking(service, slug, questions, modes))
        runs = [_run(str(mode), mode, questions, ask, arguments) for mode in modes]
        comparison = None
        if arguments.against:
            theirs = _against(stack, service, arguments, another, runs, ask)
            comparison = Comparison.of(runs[0], theirs, arguments.seed, arguments.worst)
    found = Evaluation(slug, revision, arguments.seed, available, tuple(runs), comparison, arguments.worst)
    if arguments.html:
        write_sheet(arguments.html, evaluation_page(found))
    lines = evaluation_lines(found, output.Style.of(sys.stdout))
    return show(arguments, evaluation_document(found), [*lines, *_written(arguments)])


def _check(arguments: Namespace) -> None:
    if bool(arguments.queries) != bool(arguments.qrels):
        raise InvalidEvaluation("queries and judgements belong together", hint="give both --queries and --qrels")
    if arguments.queries and arguments.kind:
        raise InvalidEvaluation("--kind chooses among mined questions", hint="leave it out, or --queries and --qrels")
    for name, least in (("limit", 1), ("worst", 0)):
        if not least <= getattr(arguments, name) <= 10_000:
            raise InvalidEvaluation(f"--{name} is {getattr(arguments, name)}", hint=f"use {least} to 10000")


def _questions(service: Service, arguments: Namespace) -> tuple[list[Question], str | None, dict[Kind, int]]:
    handle = service.wiki(arguments.slug)
    if not arguments.queries:
        mined = handle.mine([Kind(kind) for kind in arguments.kind] or MINED, arguments.limit, arguments.seed)
        return list(mined.questions), mined.revision, dict(mined.available)
    found = handle.labelled(_lines(arguments.queries), _lines(arguments.qrels))
    if not found:
        raise InvalidEvaluation("no query has a relevant page", hint="give judgements with grades above 0 in --qrels")
    state = handle.status().state
    chosen = sampled(found, arguments.limit, arguments.seed)
    return chosen, state.revision if state else None, {Kind.LABELLED: len(found)}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidEvaluation(f"{file.name} cannot be read ({why})", hint="name a file of text") from None


@contextmanager
def _asking(service: Service, slug: str, questions: Sequence[Question], modes: Sequence[Mode]) -> Iterator[Ask]:
    """Asks the wiki; what a question was taken from does not help to answer it."""
    if any(mode is not Mode.KEYWORD for mode in modes):
        service.workshop.embedder()  # without it hybrid search goes by words alone, and its figures would mislead
        if service.workshop.reranking is not None:
            service.workshop.reranking.reader()
    handle = service.wiki(slug)
    handle.settle(_PATIENCE)
    with ExitStack() as stack:
        blind = handle
        if any(question.kind is Kind.DESCRIPTIONS for question in questions):
            blind = without_answers(service, slug, questions)
            stack.callback(blind.close)

        def ask(question: Question, request: Request) -> Answer:
            return (blind if question.kind is Kind.DESCRIPTIONS else handle).search(request)

        yield ask


def _run(label: str, mode: Mode, questions: Sequence[Question], ask: Ask, arguments: Namespace) -> Run:
    if sys.stderr.isatty() and not arguments.json:
        sys.stderr.write(f"asking {output.counted(len(questions), 'question')}: {label}\n")
    return run(label, mode, questions, ask)


def _against(
    stack: ExitStack,
    service: Service,
    arguments: Namespace,
    another: Another,
    runs: Sequence[Run],
    ask: Ask,
) -> Run:
    """The other configuration: another mode, or the same mode with other settings."""
    modes = [each for each in arguments.against if "=" not in each]
    if unknown := [each for each in modes if each not in list(Mode)] or modes[1:]:
        raise InvalidSetting(
            f"--against {unknown[0]!r} makes no configuration", hint="give one mode, or NAME=VALUE for a setting"
        )
    settings = dict(each.split("=", 1) for each in arguments.against if "=" in each)
    mode = Mode(modes[0]) if modes else runs[0].mode
    questions = [outcome.question for outcome in runs[0].outcomes]
    label = " ".join([str(mode), *(f"{name}={'…' if name in _SECRETS else value}" for name, value in settings.items())])
    if settings:
        if "data" in settings and "store" not in settings and service.workshop.databases is not None:
            raise InvalidSetting(
                "the index lies in a database, whatever the data directory is",
                hint="name the other database with --against store=…, or --against store= for an index in files",
            )
        other = another(settings)
        stack.callback(other.close)
        _comparable(service, other, arguments.slug, questions)
        ask = stack.enter_context(_asking(other, arguments.slug, questions, [mode]))
    elif known := next((run for run in runs if run.mode is mode), None):
        return known
    elif mode is not Mode.KEYWORD:
        service.workshop.embedder()
    return _run(label, mode, questions, ask, arguments)


def _comparable(service: Service, other: Service, slug: str, questions: Sequence[Question]) -> None:
    """Refuse settings that only another index could show, and an index of another wiki."""
    in_files = service.workshop.databases is None
    place, place_setting = ("data directory", "data=DIR") if in_files else ("database", "store=…")
    if other.wiki(slug).settled_at() is None and service.wiki(slug).settled_at() is not None:
        raise InvalidSetting(
            "with these settings the index would have to be built anew",
            hint=f"build it in a {place} of its own, and compare with --against {place_setting}",
        )
    known = {page.path for page in other.wiki(slug).contents.list().pages}
    if missing := next((path for each in questions for path in each.relevant if path not in known), None):
        raise InvalidEvaluation(
            f"the other index lacks the page {missing!r}", hint="sync both indexes with the same repository"
        )


def _written(arguments: Namespace) -> list[str]:
    return [f"Report: {output.line(str(arguments.html))}"] if arguments.html else []
