"""How often the snippet of the first hit contains the answer to a question: the figures of docs/adr/0035.

    python -m bench.answers [--collections DIR] [--data DIR] [--every 1] [--write]

The questions are those of XQuAD in English. An article is a page of several paragraphs. Each way of choosing the
passage is measured by hybrid searches with the default model; the first way is how it was done before. A short answer
may also be in a snippet by chance.
"""

import json
from collections.abc import Iterator
from statistics import mean
from typing import Any, NamedTuple
from unittest.mock import patch

from bench import collections
from bench.quality import index_collection
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.search import hits
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle

WAYS = {
    "the nearest passage, 150 characters (before)": (0.0, 150, 1),
    "the nearest passage, 300 characters": (0.0, 300, 1),
    "by words and meaning, 150 characters": (hits.WORD_WEIGHT, 150, 1),
    "**by words and meaning, 300 characters**": (hits.WORD_WEIGHT, hits.LEAD_SNIPPET_CHARS, 1),
    "the nearest passage, as the web page did (three hits per page)": (0.0, hits.LEAD_SNIPPET_CHARS, 3),
    "**by words and meaning, as the web page does**": (hits.WORD_WEIGHT, hits.LEAD_SNIPPET_CHARS, 3),
}
"""The weight of words, the characters of a snippet, and the passages of a page that are hits."""


class AnsweredQuestion(NamedTuple):
    """A question, the page that answers it, and the answer as written there."""

    text: str
    page: str
    answer: str


def main() -> None:
    parser = make_parser(__doc__, "answers", "collections", "data")
    parser.add_argument("--every", type=int, default=1, help="ask every n-th question only")
    arguments = parser.parse_args()
    pages, questions = make_pages(collections.read_articles(arguments.collections))
    repository = arguments.data / "collections" / "xquad.git"
    collections.write_pages(pages, repository)
    service = open_service(arguments.data / "quality")
    index_collection(service, "xquad", repository)
    text = "\n".join(compare_ways(service.get_handle("xquad"), questions[:: arguments.every]))
    service.close()
    publish("answers", __doc__, text, write=arguments.write, note=f"\n\n{len(pages)} pages.")


def make_pages(articles: list[dict[str, Any]]) -> tuple[dict[str, str], list[AnsweredQuestion]]:
    """The articles as pages by file name, and the questions."""
    pages: dict[str, str] = {}
    questions: list[AnsweredQuestion] = []
    for article in articles:
        title, paragraphs = article["title"].replace("_", " "), article["paragraphs"]
        head = f"---\ntitle: {json.dumps(title, ensure_ascii=False)}\n---\n\n"
        pages[f"{title}.md"] = head + "\n\n".join(paragraph["context"] for paragraph in paragraphs) + "\n"
        questions += [
            AnsweredQuestion(item["question"], title, item["answers"][0]["text"])
            for paragraph in paragraphs
            for item in paragraph["qas"]
        ]
    return pages, questions


def compare_ways(wiki: WikiHandle, questions: list[AnsweredQuestion]) -> Iterator[str]:
    yield make_head(
        "| way | questions | the right page is first | its passage contains the answer | the snippet contains it |"
    )
    for way, (weight, length, per_page) in WAYS.items():
        with patch.object(hits, "WORD_WEIGHT", weight), patch.object(hits, "LEAD_SNIPPET_CHARS", length):
            right, contained, shown = zip(*(check_answer(wiki, each, per_page) for each in questions), strict=True)
        yield f"| {way} | {len(questions)} | {mean(right):.1%} | {mean(contained):.1%} | {mean(shown):.1%} |"


def check_answer(wiki: WikiHandle, question: AnsweredQuestion, per_page: int = 1) -> tuple[bool, bool, bool]:
    """Whether the first hit is the right page, whether its passage contains the answer, and whether its snippet does."""
    hit = wiki.search(SearchRequest(question.text, per_page, chunks_per_page=per_page)).hits[0]
    answer, is_right = " ".join(question.answer.split()), hit.name == question.page
    found = [is_right and answer in " ".join(text.split()) for text in (hit.text, hit.snippet.text)]
    return is_right, found[0], found[1]


if __name__ == "__main__":
    main()
