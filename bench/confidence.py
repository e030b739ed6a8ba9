"""How far "high" and "nothing relevant" can be trusted, as a client of the product sees them.

    python -m bench.confidence [--collections DIR] [--data DIR] [--write]

Uses the indexes of bench.quality (run that first), with searches of the product. Every query of a collection is
*answerable* there; up to 40 queries of each set of the other collections are *foreign*.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from bench import collections
from bench.report import describe_machine, write_result
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import Confidence, SearchMode, SearchResult
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle

FOREIGN_PER_SET = 40
HEAD = """| search | answerable | high is right | right ones called high | nothing relevant | foreign | nothing relevant | high |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--write", action="store_true", help="write bench/results/confidence.md")
    arguments = parser.parse_args()
    asked = [
        kind for name in collections.SHARED_NAMES for kind in collections.read_queries(arguments.collections / name)
    ]
    service = open_service(arguments.data / "quality")
    wikis = {name: service.get_handle(name) for name in collections.SHARED_NAMES}
    lines = [HEAD, *(measure(mode, asked, wikis) for mode in SearchMode)]
    service.close()
    if arguments.write:
        write_result("confidence", "\n".join([__doc__ or "", describe_machine(), "", *lines]))


def measure(mode: SearchMode, asked: list[collections.Queries], wikis: dict[str, WikiHandle]) -> str:
    own = list(answer_own(mode, asked, wikis))
    foreign = list(answer_foreign(mode, asked, wikis))
    high = [right for right, is_high, _ in own if is_high]
    found = [is_high for right, is_high, _ in own if right]
    shares = (
        share(high),
        share(found),
        share([is_nothing for _, _, is_nothing in own]),
        f"{len(foreign)}",
        share([result.nothing_relevant for result in foreign]),
        share([is_first_high(result) for result in foreign]),
    )
    row = f"| {mode} | {len(own)} | {' | '.join(shares)} |"
    print(row, flush=True)
    return row


def answer_own(
    mode: SearchMode, asked: list[collections.Queries], wikis: dict[str, WikiHandle]
) -> Iterator[tuple[bool, bool, bool]]:
    """For each answerable query whether the first hit is right, whether it is high, and whether nothing is relevant."""
    for kind in asked:
        for query, text in kind.texts.items():
            left_out = kind.exclude.get(query, set())
            result = wikis[kind.collection].search(SearchRequest(text, 5 + len(left_out), mode, rerank=False))
            hits = [hit for hit in result.hits if hit.path not in left_out][:1]
            right = any(hit.path in kind.relevant[query] for hit in hits)
            yield right, any(hit.confidence is Confidence.HIGH for hit in hits), result.nothing_relevant


def answer_foreign(
    mode: SearchMode, asked: list[collections.Queries], wikis: dict[str, WikiHandle]
) -> Iterator[SearchResult]:
    rng = random.Random(5)
    for name, wiki in wikis.items():
        for kind in asked:
            texts = sorted(kind.texts.values())
            for text in rng.sample(texts, min(FOREIGN_PER_SET, len(texts))) if kind.collection != name else ():
                yield wiki.search(SearchRequest(text, 5, mode, rerank=False))


def is_first_high(result: SearchResult) -> bool:
    return any(hit.confidence is Confidence.HIGH for hit in result.hits[:1])


def share(values: list[bool]) -> str:
    return f"{100 * sum(values) / max(1, len(values)):.1f} %"


if __name__ == "__main__":
    main()
