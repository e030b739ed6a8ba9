"""Small wikis behind several nodes."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.many_wikis.repositories import SmallPage, create_repositories, make_slug, pick_pages
from bench.postgres.node import Node


class Cluster:
    """Wikis, their repositories, and the data directories of nodes."""

    def __init__(self, place: Path, pages: Sequence[SmallPage], wikis: int) -> None:
        self.place, self.pages, self.wikis = place, pages, wikis
        self.repositories = list(create_repositories(pages, place / "wikis", wikis))
        self._made = 0

    @contextmanager
    def start_nodes(
        self, count: int, store: str, others: Sequence[str] = (), lease: float = 15.0
    ) -> Iterator[list[Node]]:
        """`count` nodes over a store that has all wikis at HEAD."""
        with ExitStack() as stack:
            data = [self._create_data(store, lease) for _ in range(count)]
            for number, other in enumerate(others):
                Node.run_command(data[0], "database", "add", f"db{number}", other)
            nodes: list[Node] = []
            stack.callback(lambda: [node.stop_if_running() for node in nodes])
            for each in data:
                nodes.append(Node(each, [self.place / "wikis"], self.place / "log"))
                nodes[-1].wait_for_wikis(self.slugs)
            yield nodes

    @property
    def slugs(self) -> list[str]:
        return [make_slug(number) for number in range(self.wikis)]

    def get_question(self, number: int) -> tuple[str, str]:
        """A wiki and a question that it answers, at random, so that all clients search all wikis."""
        wiki = random.Random(number).randrange(self.wikis)
        mine = pick_pages(self.pages, wiki)
        return make_slug(wiki), mine[number % len(mine)].title

    def _create_data(self, store: str, lease: float) -> Path:
        self._made += 1
        data = self.place / f"node{self._made}"
        data.mkdir()
        lines = [f'store = "{store}"', "[postgres]", f"lease = {lease}"] if store else []
        (data / "wikiholt.toml").write_text("\n".join([*lines, "[sync]", "interval = 2.0", ""]))
        return data
