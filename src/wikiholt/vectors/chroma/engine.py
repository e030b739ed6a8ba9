"""Chroma, as one process of Wikiholt has it: where it is, what it counts, and a cache for each wiki."""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Api
from wikiholt.vectors.chroma.cache import ChromaCache
from wikiholt.vectors.chroma.faults import ChromaAway, ChromaRefused
from wikiholt.vectors.chroma.figures import COUNTED, Figures
from wikiholt.vectors.chroma.host import Host, Server
from wikiholt.vectors.chroma.layout import LAYOUTS
from wikiholt.vectors.chroma.mirror import Whose
from wikiholt.vectors.chroma.spawning import Child
from wikiholt.vectors.chroma.wire import Wire
from wikiholt.vectors.chroma.worker import Caretaker

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where Chroma is and how it is to be used. Either `url` or `path` is given."""

    url: str = ""
    path: Path | None = None
    tenant: str = "default_tenant"
    database: str = "default_database"
    layout: str = "id"
    timeout: float = 2.0
    token: str = ""
    patience: float = 30.0
    """Seconds that work in the background waits for one answer; a child of ours that takes longer is ended."""
    heartbeat: float = 15.0


class Chroma:
    """Caches for all wikis of a process. `known` gives their ids; `mine` is a file that says whose collections are."""

    name = "chroma"

    def __init__(self, place: Place, mine: Path, known: Callable[[], Iterable[str]]) -> None:
        self._place = place
        self._mine = mine
        self._known = known
        self._layout = LAYOUTS[place.layout]
        self._figures = Figures()
        host: Host = Server(place.url) if place.path is None else Child(place.path, self._figures)
        tokens = {"X-Chroma-Token": place.token, "Authorization": f"Bearer {place.token}"} if place.token else {}
        self._wire = Wire(host.connect, tokens, "localhost" if host.own else host_of(place.url))
        api = Api(self._wire, place.tenant, place.database, place.patience)
        self._caretaker = Caretaker(
            host, api, self._figures, known=known, begin=self._sweep, heartbeat=min(place.heartbeat, place.patience)
        )

    def cache(
        self, index: WikiIndex, directory: Path, wiki_id: str, slug: str, published: Callable[[], bool] = lambda: True
    ) -> ChromaCache:
        """The cache of one wiki; `published` says whether this index is still the one it is searched by."""
        whose = Whose(wiki_id, slug, self._owner(), self._layout)
        timeout = self._place.timeout
        return ChromaCache(index, directory, whose, self._caretaker, timeout=timeout, published=published)

    def forget(self, wiki_id: str, slug: str) -> None:
        """Remove a wiki's collection and what it left on the disk; what is away now goes when it is back."""
        name = self._layout.collection(wiki_id, slug)
        try:
            if self._caretaker.trouble:
                raise ChromaAway(self._caretaker.trouble)
            self._drop(wiki_id, (name, f"{name}.new"))
        except (WikiholtError, OSError) as error:
            self._caretaker.begin_again()
            _LOG.warning("a removed wiki's collection is still in Chroma, until it can be reached: %s", error)

    def _drop(self, wiki_id: str, names: Iterable[str]) -> None:
        api, host = self._caretaker.api, self._caretaker.host
        host.start()
        for name in names:
            found = api.find(name)
            if found is not None and found.marks.get("wikiholt_wiki") == wiki_id:
                api.drop(name)
        if host.own:
            api.tidy()

    def figures(self) -> Mapping[str, tuple[str, int]]:
        """Each counter with what it counts."""
        return {name: (COUNTED[name], count) for name, count in self._figures.now().items()}

    @property
    def up(self) -> bool:
        """Whether Chroma answered when it was last needed."""
        return self._caretaker.up

    def examine(self) -> str:
        """What is wrong with it, in words; empty when it answers as it should. For the operator."""
        try:
            self._caretaker.host.start()
            self._caretaker.api.heartbeat(self._place.heartbeat)
            self._caretaker.api.prepare()
            for _ in self._caretaker.api.all():
                pass
        except (WikiholtError, OSError) as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Stop work in the background and let the child go, which ends unless others use it."""
        self._caretaker.close()
        ending = False
        if self._caretaker.host.own:
            with suppress(ChromaAway, ChromaRefused):
                ending = self._caretaker.api.leave()
        self._wire.close()
        self._caretaker.host.close(ending=ending)

    def _owner(self) -> str:
        """By which collections of this installation are known; made when it is first asked for."""
        with suppress(OSError):
            return self._mine.read_text("utf-8").strip()
        owner = secrets.token_hex(16)
        try:
            self._mine.parent.mkdir(parents=True, exist_ok=True)
            with self._mine.open("x", encoding="utf-8") as file:
                file.write(owner)
        except FileExistsError:
            return self._mine.read_text("utf-8").strip()
        except OSError as error:
            _LOG.warning("collections in Chroma cannot be marked as ours: %s", error.strerror or error)
            return ""
        return owner

    def _sweep(self, api: Api) -> None:
        """Remove collections of ours whose wiki is no more: it was removed while Chroma was away."""
        owner, known = self._owner(), set(self._known())
        gone = [
            found.name
            for found in api.all()
            if owner and found.marks.get("wikiholt_owner") == owner and found.marks.get("wikiholt_wiki") not in known
        ]
        for name in gone:
            api.drop(name)
        if gone and self._caretaker.host.own:
            api.tidy()


def host_of(url: str) -> str:
    """The host and port of a URL, as they are named in a request."""
    return url.split("://", 1)[-1].split("/", 1)[0]
