"""The read path of one wiki: words and meaning, fused, one hit a page, with a snippet and how fresh it is.

A Searcher holds the index of one wiki and knows no other. It is safe to use from many threads and never waits for
a writer: it answers from the last committed state.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from wikiholt.errors import (
    DatabaseAway,
    InvalidQuery,
    ModelError,
    ModelMismatch,
    NotHere,
    NothingIndexed,
    PageNotFound,
    WikiholtError,
)
from wikiholt.hits import HitMaker
from wikiholt.model import (
    Answer,
    Confidence,
    Filter,
    Floats,
    Ints,
    Mode,
    Neighbours,
    Scale,
    State,
    StoredPage,
    WordQuery,
)
from wikiholt.ports import Embedder, Lexicon, VectorCache, WikiIndex, WordCache, WordSense
from wikiholt.ranking import Candidate, Rivals, akin, best_by_page, joined, ranked, rivals, scored
from wikiholt.search.likeness import alike, nearest_pages, probes
from wikiholt.search.naming import Naming
from wikiholt.search.request import MAX_HITS, Request
from wikiholt.search.reranking import DEPTH, Reranking, Rereader
from wikiholt.search.wording import Worded, Wording
from wikiholt.text.links import folded
from wikiholt.text.snippets import Closeness

BY_WORDS, BY_MEANING = 50, 100
"""Pages that words put forward in a hybrid search, and the nearest chunks whose pages meaning does.

Fixed, so that asking for more hits only lengthens the list. The pages that words found are measured by meaning too, so
meaning need not reach far. See docs/adr for what other depths give.
"""

_ALL_CHUNKS = 1_000_000
"""More chunks than a hundred pages have."""

_EVERY = Filter()
_COSINES = Scale()

_LOG = logging.getLogger(__name__)


class Searcher:
    """Searches one wiki."""

    def __init__(
        self,
        index: WikiIndex,
        vectors: VectorCache,
        words: WordCache | None,
        embedder: Callable[[], Embedder],
        *,
        head: Callable[[], str] | None,
        hits: HitMaker,
        language: str,
        scale: Scale = _COSINES,
        reranking: Reranking | None = None,
        lexicon: Callable[[], Lexicon | None],
    ) -> None:
        self._index = index
        self._vectors = vectors
        self._words = words
        self._embedder = embedder
        self._head = head
        self._hits = hits
        self._scale = scale
        self._rereader = Rereader(index, reranking) if reranking is not None else None
        self._wording = Wording(index, language, lexicon)
        self._naming = Naming(index.stored_pages, language)
        self._state: State | None = None

    def search(self, request: Request) -> Answer:
        """The best pages for the request; an error is raised, never answered with an empty list."""
        began = time.perf_counter()
        standing = self._stand()
        worded = self._wording.read(request.query, request.where, self._knows)
        query = worded.query
        if query.excluded and not query:
            raise InvalidQuery("the query only says what to leave out", hint="say also what to look for")
        if request.mode is Mode.KEYWORD and not query:
            raise InvalidQuery("there is no word in the query", hint="write letters or digits, or search by meaning")
        if request.rerank and self._rereader is None:
            raise InvalidQuery(
                "no reranker is set", hint="set rerank.model (docs/models.md names one), or leave rerank out"
            )
        run = _Run(worded, request, self._allowed(request, worded), standing.version)
        if worded.unaided:
            run.degrade("the wiki's words are not all at hand; slips and compounds were not looked for")
        if request.rerank and request.mode is Mode.KEYWORD:
            run.notes.append("what is found by words alone is not reranked")
        best = self._best(run, standing.recipe.fingerprint)
        return self._answer(run, best, standing, began)

    def similar(self, path: str, n: int = 5, where: Filter = _EVERY) -> Answer:
        """The pages whose passages are nearest to those of the page with this path, which is left out."""
        began = time.perf_counter()
        request = Request(path, n, Mode.SEMANTIC, where)
        standing = self._stand()
        page = self._page(path)
        allowed = self._index.allowed(where)
        others = allowed if allowed is None else allowed[allowed != page.page_id]
        run = _Run(Worded(WordQuery(), WordQuery(), ""), request, others, standing.version)
        own = self._index.page_vectors([page.page_id]).vectors
        if not len(own):
            run.notes.append("this page has no passage that others could be like")
        best = akin(self._alike(run, page, own)[:n]) if len(own) else []
        return self._answer(run, best, standing, began, leaving_out=1)

    def _answer(
        self, run: "_Run", best: Sequence[Candidate], standing: State, began: float, leaving_out: int = 0
    ) -> Answer:
        request = run.request
        if standing.revision is None:
            run.degrade("the index is being built; not every page is in it yet")
        hits = tuple(self._hits.make(run.worded.asked, run.by, best, run.closeness))
        head = self._head_revision(run)
        checked = self._head is not None
        return Answer(
            query=request.query,
            mode=request.mode,
            hits=hits,
            total=standing.pages - leaving_out if run.allowed is None else len(run.allowed),
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            indexed_revision=standing.revision,
            head_revision=head,
            stale=checked and head != standing.revision,
            degraded=run.degraded,
            nothing_relevant=all(hit.confidence is Confidence.LOW for hit in hits),
            notes=tuple(run.notes),
            did_you_mean=run.worded.did_you_mean,
            reranked=run.reranked,
        )

    @property
    def pages(self) -> int:
        """The pages of the wiki when it was last searched."""
        return self._state.pages if self._state is not None else 0

    def _stand(self) -> State:
        """The index's state, counted again only when its version has changed."""
        version = self._index.version()
        if self._state is None or self._state.version != version:
            self._state = self._index.state()
        if not self._state.pages:
            raise NothingIndexed("this wiki has no indexed page", hint="run `wikiholt sync` and look at what it says")
        return self._state

    def _allowed(self, request: Request, worded: Worded) -> Ints | None:
        """The pages that may be found: those that pass the filter, hold the phrases and lack what is excluded."""
        allowed = self._index.allowed(request.where)
        demands = worded.demands(phrases=request.mode is not Mode.SEMANTIC)
        if not demands:
            return allowed
        holding = reduce(np.union1d, map(self._index.holding, demands))
        return holding if allowed is None else np.intersect1d(allowed, holding, assume_unique=True)

    def _best(self, run: "_Run", fingerprint: str) -> list[Candidate]:
        """As many pages as are asked for, each with how likely it is what was asked for."""
        if run.allowed is not None and not len(run.allowed):
            return []
        request = run.request
        shares = self._shares(run) if request.mode is not Mode.SEMANTIC and run.worded.query else {}
        vector = self._vector(run, fingerprint) if request.mode is not Mode.KEYWORD else None
        mode = run.by = request.mode if vector is not None else Mode.KEYWORD
        found = ranked(mode, self._found(run, vector, shares))
        among = rivals(mode, found)
        best = self._reread(run, found, among) if vector is not None else found
        if mode is Mode.HYBRID and vector is not None and len(best) < request.n:
            best = best + self._further(run, vector, best)
        return scored(mode, best[: request.n], among)

    def _found(self, run: "_Run", vector: Floats | None, shares: Mapping[int, float]) -> list[Candidate]:
        """The pages that compete, in no order; enough of them to tell how far the best stand out."""
        if vector is None:
            return self._named(run, joined((), shares, {}))
        per_page = run.request.chunks_per_page
        if run.request.mode is Mode.SEMANTIC:
            # The first page has a rival here, however few hits are asked for and however many are its own.
            return self._by_meaning(run, vector, max(run.request.n, per_page + 1, DEPTH if self._rereads(run) else 0))
        meaning = best_by_page(self._nearest(run, vector, BY_MEANING, run.allowed), per_page, self._scale)
        return self._named(run, joined(meaning, shares, self._nearest_of(run, vector, meaning, shares)))

    def _rereads(self, run: "_Run") -> bool:
        return self._rereader is not None and run.request.rerank is not False

    def _reread(self, run: "_Run", best: list[Candidate], among: Rivals) -> list[Candidate]:
        """The best of them read again by the reranker, where there is one and it is wanted."""
        if self._rereader is None or run.request.rerank is False or not best:
            return best
        found = self._rereader.reread(run.worded.text, run.request.mode, best, among)
        run.reranked = not found.fault
        if found.fault:
            run.degrade(found.fault)
        return found.best

    def _named(self, run: "_Run", found: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with how far the query names each."""
        page_ids = (candidate.page_id for candidate in found)
        names = self._naming.likeness(run.worded.query, page_ids, run.version, run.worded.others)
        return [candidate._replace(naming=names.get(candidate.page_id, 0.0)) for candidate in found]

    def _page(self, path: str) -> StoredPage:
        """The indexed page with this path, or the only one whose path differs in case alone."""
        page = self._index.find_page(path)
        if page is not None:
            return page
        wanted = path.strip("/").casefold()
        found = [each for each in self._index.named([folded(wanted)]) if wanted in _names(each)]
        if len(found) != 1:
            raise PageNotFound(
                f"there is no page {path[:200]!r} in the index", hint="list the pages; a new one is indexed by a sync"
            )
        return found[0]

    def _alike(self, run: "_Run", page: StoredPage, own: Floats) -> list[Candidate]:
        """Pages near to one of the page's passages or to their middle, then judged by all of their passages."""
        if run.allowed is not None and not len(run.allowed):
            return []
        # Its own passages are the nearest of all and must not crowd out the others.
        limit = BY_MEANING + (len(own) if run.allowed is None else 0)
        looked_near = probes(own)
        near = [self._nearest(run, probe, limit, run.allowed) for probe in looked_near]
        looked_at = nearest_pages(near, page.page_id)
        best = ranked(Mode.SEMANTIC, alike(own, self._index.page_vectors(looked_at), self._scale))
        if len(best) >= run.request.n:
            return best
        known = {page.page_id, *looked_at}
        further = self._by_meaning(run, looked_near[0], run.request.n + len(known))
        return best + [each for each in further if each.page_id not in known]

    def _vector(self, run: "_Run", fingerprint: str) -> Floats | None:
        """The query's vector; None where a hybrid search has to do without, since the model failed or is another."""
        try:
            embedder = self._embedder()
            if embedder.fingerprint != fingerprint:
                raise ModelMismatch(
                    f"the index was built with {fingerprint}, not with {embedder.fingerprint}",
                    hint="run `wikiholt sync` to build it with the model that is set now",
                )
            vector = embedder.query(run.worded.text)
            run.closeness = embedder.closeness(run.worded.text) if isinstance(embedder, WordSense) else None
            return vector
        except ModelError as error:
            if run.request.mode is Mode.SEMANTIC:
                raise
            _LOG.warning("searched by words alone: %s", error.message)
            run.degrade(f"searched by words alone, for the model cannot be used ({error.code})")
            return None

    def _knows(self, word: str) -> bool:
        """Whether the model knows the word: then it is no slip, though no page holds it."""
        try:
            return self._embedder().knows(word.lower())
        except ModelError:
            return False

    def _shares(self, run: "_Run") -> dict[int, float]:
        """The pages found by words, each with its share of the best possible score."""
        depth = MAX_HITS if run.request.mode is Mode.KEYWORD else BY_WORDS
        if self._words is not None:
            try:
                self._words.refresh()
                if self._words.version is not None:
                    # `allowed` has left out what the query excludes.
                    words = self._words
                    return run.worded.shares(
                        lambda asked: words.search(replace(asked, excluded=()), depth, run.allowed),
                        lambda asked: words.best_possible(replace(asked, excluded=())),
                    )
            except NotHere:
                pass
            except DatabaseAway:
                raise  # the index is there too
            except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the truth answers
                _LOG.warning("the word cache failed (%s); the index answers", error)
                run.degrade("the word cache failed; answered from the index itself")
        return run.worded.shares(
            lambda asked: self._index.words(asked, depth, run.request.where), self._index.best_possible
        )

    def _by_meaning(self, run: "_Run", vector: Floats, pages: int) -> list[Candidate]:
        """The nearest pages: chunks are asked for until there are enough pages or no more chunks."""
        limit = pages * 3
        while True:
            near = self._nearest(run, vector, limit, run.allowed)
            candidates = best_by_page(near, run.request.chunks_per_page, self._scale)
            if len(candidates) >= pages or len(near.chunk_ids) < limit:
                return candidates[:pages]
            limit *= 4

    def _further(self, run: "_Run", vector: Floats, best: Sequence[Candidate]) -> list[Candidate]:
        """The pages that come after those both channels put forward, for whoever asks for so many: by meaning."""
        known = {candidate.page_id for candidate in best}
        found = self._by_meaning(run, vector, run.request.n + len(known))
        return [candidate for candidate in found if candidate.page_id not in known]

    def _nearest(self, run: "_Run", vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        try:
            if not run.refreshed:
                self._vectors.refresh()
                run.refreshed = True
            if self._vectors.version is not None:
                near = self._vectors.search(vector, limit, pages)
                if near.degraded:
                    run.degrade("part of the vector cache is away; answered by exact scores alone")
                return near
            run.degrade("the vector cache is being built; answered from the index itself")
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.warning("the vector cache failed (%s); the index answers", error)
            run.degrade("the vector cache failed; answered from the index itself")
        return self._index.nearest(vector, limit, pages)

    def _nearest_of(
        self, run: "_Run", vector: Floats, meaning: Sequence[Candidate], shares: Mapping[int, float]
    ) -> Mapping[int, Sequence[Candidate]]:
        """The nearest chunks of the pages that words alone found, so that both channels judge every page."""
        known = {candidate.page_id for candidate in meaning}
        lacking = np.array(sorted(page_id for page_id in shares if page_id not in known), np.int64)
        if not len(lacking):
            return {}
        near = self._nearest(run, vector, _ALL_CHUNKS, lacking)
        found: defaultdict[int, list[Candidate]] = defaultdict(list)
        for candidate in best_by_page(near, run.request.chunks_per_page, self._scale):
            found[candidate.page_id].append(candidate)
        return found

    def _head_revision(self, run: "_Run") -> str | None:
        """HEAD now; when the repository cannot be read the answer still stands, and says so."""
        if self._head is None:
            run.notes.append("HEAD was not looked at (search.stale_check is off)")
            return None
        try:
            return self._head()
        except WikiholtError as error:
            # The message may name a path of this machine, and notes travel to visitors.
            run.notes.append(f"HEAD is unknown, for the repository cannot be read ({error.code})")
            return None


@dataclass(slots=True)
class _Run:
    """What one search learns on its way."""

    worded: Worded
    request: Request
    allowed: Ints | None
    version: int
    notes: list[str] = field(default_factory=list)
    degraded: bool = False
    refreshed: bool = False
    reranked: bool = False
    by: Mode = Mode.SEMANTIC
    """By what pages were found in the end; without a model, a hybrid search finds by words."""
    closeness: Closeness | None = None
    """What tells which sentence of a passage is closest to the query."""

    def degrade(self, note: str) -> None:
        self.degraded = True
        if note not in self.notes:
            self.notes.append(note)


def _names(page: StoredPage) -> tuple[str, str]:
    return page.path.casefold(), page.file.casefold()
