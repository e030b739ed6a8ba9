"""`wikiholt ask`: sentences of the wiki of this folder, or of other wikis, that answer a question."""

from __future__ import annotations

import sys
from contextlib import suppress
from textwrap import wrap
from typing import TYPE_CHECKING

from wikiholt.domain.search import SearchInterface
from wikiholt.errors import ModelError, WikiholtError
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import (
    NOTHING_FOUND_EXIT_CODE,
    CommandContext,
    Subparsers,
    add_command,
    add_repeatable,
)
from wikiholt.interfaces.cli.hit_output import FilePlaces
from wikiholt.interfaces.cli.output import TerminalStyle, to_safe_line
from wikiholt.interfaces.cli.search_command import (
    add_filter_options,
    add_past_option,
    add_wait_option,
    keep_warm,
    open_current_wikis,
    open_past,
    read_filter,
)
from wikiholt.search.request import SearchRequest

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from wikiholt.api.documents.answer_documents import AnswerDocument, WrittenAnswerDocument, WrittenSentenceDocument
    from wikiholt.domain.answer import Answer
    from wikiholt.domain.search import PageFilter
    from wikiholt.wikis.handle import WikiHandle

_INDENT = "  "
_BUILD_WAIT_S = 60.0


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "ask", run_ask)
    parser.add_argument("words", nargs="+", metavar="QUESTION", help="the question")
    add_repeatable(parser, "-w", "--wiki", metavar="SLUG", text="ask this wiki; repeatable")
    text = "the previous question, for a follow-up such as: and how long?"
    parser.add_argument("--after", default="", metavar="QUESTION", help=text)
    add_filter_options(parser)
    add_wait_option(parser)
    parser.add_argument("--explain", action="store_true", help="say in one line why each sentence or page is there")
    text = "do not ask the language model, if ask.model is set"
    parser.add_argument("--no-model", action="store_false", dest="model", help=text)
    add_past_option(parser)
    parser.add_argument("--no-sync", action="store_true", help="ask the index as it is, without syncing it first")


def run_ask(context: CommandContext) -> int:
    """Ask each wiki, and print the most likely answer."""
    arguments = context.arguments
    question = " ".join(arguments.words)
    where = read_filter(arguments)
    SearchRequest(question, where=where)  # raises before anything is indexed
    if arguments.at is not None:
        return _ask_past(context, question, where)
    wikis, handles, failures = open_current_wikis(context)
    with suppress(ModelError):  # the search notes it
        context.service.load_embedder()
    answers, errors = _ask_each(arguments, handles, question, where)
    errors = {**failures, **errors}
    if not answers:
        raise next(iter(errors.values()))
    from wikiholt.api.documents.answer_documents import (
        build_answer_document,
        build_written_document,
        build_written_sentence,
    )

    best = max(answers, key=lambda slug: answers[slug].probability)
    handle = next(handle for handle in handles if handle.wiki.slug == best)
    document = build_answer_document(answers[best], language_model=handle.language_model)
    document["notes"] += [f"{slug} was not asked: {error.message}" for slug, error in errors.items()]
    wiki = next(wiki for wiki in wikis if wiki.slug == best)
    label = f"{best}: " if len(wikis) > 1 else ""
    style, places = context.style, FilePlaces.from_wiki(wiki)
    draft = handle.start_writing(answers[best]) if arguments.model else None
    if draft is None or not arguments.json:
        context.print_result(document, list(format_answer(document, style, places, label)))
    keep_warm(context)
    if draft is None:
        return 0 if document["answered"] else NOTHING_FOUND_EXIT_CODE
    if arguments.json:
        draft.write_all()
    else:
        output.print_lines(["", style.format_bold(f"{to_safe_line(draft.model)} writes from these pages:")])
        for sentence in draft:
            output.print_lines(list(format_written_sentence(build_written_sentence(sentence), style)))
            sys.stdout.flush()
    written = document["written"] = build_written_document(draft.get_written(), document["indexed_revision"])
    context.print_result(document, list(format_end(written, style, places, label)))
    return 0 if document["answered"] or written["supported_share"] else NOTHING_FOUND_EXIT_CODE


def _ask_each(
    arguments: Namespace, handles: Sequence[WikiHandle], question: str, where: PageFilter
) -> tuple[dict[str, Answer], dict[str, WikiholtError]]:
    """The answers and the errors of wikis, by slug."""
    answers: dict[str, Answer] = {}
    errors: dict[str, WikiholtError] = {}
    for handle in handles:
        try:
            answers[handle.wiki.slug] = handle.ask(
                question, arguments.after, where, explain=arguments.explain, interface=SearchInterface.CLI
            )
        except WikiholtError as error:
            errors[handle.wiki.slug] = error
    return answers, errors


def _ask_past(context: CommandContext, question: str, where: PageFilter) -> int:
    """Answer from the wiki as it was, without a language model."""
    from wikiholt.api.documents.answer_documents import build_answer_document

    _, handle = open_past(context)
    answer = handle.past.ask(context.arguments.at, question, where, _BUILD_WAIT_S, explain=context.arguments.explain)
    document = build_answer_document(answer)
    places = FilePlaces(None, None)
    context.print_result(document, list(format_answer(document, context.style, places)))
    return 0 if document["answered"] else NOTHING_FOUND_EXIT_CODE


def format_written_sentence(sentence: WrittenSentenceDocument, style: TerminalStyle) -> Iterator[str]:
    """A sentence of a language model with its citations; one that is not supported is struck through and says why."""
    citations = "".join(f" [{number}]" for number in sentence["citations"])
    lines = wrap(to_safe_line(sentence["text"]) + citations, output.get_text_width())
    if sentence["supported"]:
        yield from lines
    else:
        yield from map(style.format_struck, lines)
        yield _INDENT + style.format_warning(f"not supported: {to_safe_line(sentence['reason'] or '')}")


def format_end(
    written: WrittenAnswerDocument, style: TerminalStyle, places: FilePlaces, label: str = ""
) -> Iterator[str]:
    """The places of the cited passages, and how many sentences are supported."""
    cited = {number for sentence in written["sentences"] for number in sentence["citations"]}
    for number, passage in enumerate(written["passages"], 1):
        if number in cited:
            place = places.format(passage["file"], passage["line"], style)
            yield style.format_dim(f"{_INDENT}[{number}] {label}{place}")
    if written["sentences"]:
        supported = sum(sentence["supported"] for sentence in written["sentences"])
        count = output.format_count(len(written["sentences"]), "sentence")
        yield style.format_dim(f"{supported} of {count} supported by the cited passages")
    if written["note"]:
        yield style.format_warning(f"note: {to_safe_line(written['note'])}")


def format_answer(document: AnswerDocument, style: TerminalStyle, places: FilePlaces, label: str = "") -> Iterator[str]:
    """The answer as text: each sentence with its place, or the closest pages. `label` precedes each place."""
    commit = f"@{document['indexed_revision'][:10]}" if document["indexed_revision"] else ""
    width = output.get_text_width()
    if document["answered"]:
        for sentence in document["sentences"]:
            place = places.format(sentence["file"], sentence["line"], style)
            yield from wrap(to_safe_line(sentence["text"]), width)
            heading = sentence["heading_path"][-1] if sentence["heading_path"] else sentence["name"]
            section = f" › {to_safe_line(heading)}" if heading != sentence["name"] else ""
            yield _INDENT + style.format_dim(label + place + commit + section)
            yield from _explain(sentence["explanation"], style)
    elif document["closest"]:
        is_complete = document["meaning_ready"] == 1
        verdict = "This wiki does not say. The closest pages are:" if is_complete else "The closest pages so far are:"
        yield style.format_warning(verdict)
        for number, hit in enumerate(document["closest"], 1):
            place = places.format(hit["file"], hit["lines"][0], style)
            yield f"{number}. {style.format_bold(to_safe_line(hit['name']))}  {style.format_dim(label + place)}"
            yield from _explain(hit["explanation"], style)
            yield from wrap(to_safe_line(hit["snippet"]), width, initial_indent="   ", subsequent_indent="   ")
    else:
        yield style.format_warning(
            "This wiki does not say." if document["meaning_ready"] == 1 else "Nothing found yet."
        )
    yield style.format_dim(f"{document['probability']:.0%} likely · {document['took_ms']:.0f} ms")
    yield from (style.format_warning(f"note: {to_safe_line(note)}") for note in document["notes"])


def _explain(explanation: str | None, style: TerminalStyle) -> Iterator[str]:
    if explanation:
        yield _INDENT + style.format_dim(to_safe_line(explanation))
