"""The first search at past commits of a wiki: until its answer, until all is embedded, what is reused, and the disk.

    python -m bench.past SLUG --data DIR [--months 1 3 6 12 24] [--write]

The data directory has the wiki, indexed. Views of past commits are deleted before each measurement.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta

from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.search.request import SearchRequest


def main() -> None:
    parser = make_parser(__doc__, "past", "data")
    parser.add_argument("slug")
    parser.add_argument("--months", type=int, nargs="*", default=[1, 3, 6, 12, 24])
    arguments = parser.parse_args()
    publish("past", __doc__, "\n".join(measure(arguments)), write=arguments.write)


def measure(arguments: Namespace) -> Iterator[str]:
    service = open_service(arguments.data)
    handle = service.get_handle(arguments.slug)
    handle.sync()
    service.load_embedder().embed_query("warm")
    past, head = handle.past, handle.past.find_commit("HEAD")
    yield make_head("| months back | commit | pages | first answer, s | complete, s | CPU, s | chunks reused | MB |")
    for months in arguments.months:
        for view in past.list_views():
            past.remove(view.revision)
        at = past.find_commit(f"{head.date - timedelta(days=30.4 * months):%Y-%m-%d}")
        embedded: list[int] = []
        began, cpu = time.monotonic(), time.process_time()
        past.build(at.name, words_only=True)
        past._get_view(at.revision).handle.search(SearchRequest("how do I install it"))
        first = time.monotonic() - began
        past.build(at.name, lambda progress, counts=embedded: counts.append(progress.chunks_embedded))  # type: ignore[misc]
        total, used = time.monotonic() - began, time.process_time() - cpu
        view = past.list_views()[0]
        assert view.state is not None
        share = 1 - max(embedded, default=0) / view.state.chunks
        row = (
            months,
            at.revision[:10],
            view.state.pages,
            f"{first:.1f}",
            f"{total:.1f}",
            f"{used:.1f}",
            f"{share:.1%}",
        )
        yield f"| {' | '.join(map(str, row))} | {view.bytes / 1e6:.1f} |"
    service.close()


if __name__ == "__main__":
    main()
