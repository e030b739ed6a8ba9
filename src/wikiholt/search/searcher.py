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

from wikiholt.domain.index import CosineScale, FloatArray, IndexState, IntArray, VectorHits
from wikiholt.domain.protocols import Embedder, KeywordCache, Lexicon, SupportsSentenceScoring, VectorCache
from wikiholt.domain.search import Confidence, KeywordQuery, PageFilter, SearchMode, SearchResult, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import (
    CacheCannotAnswer,
    DatabaseUnavailable,
    InvalidQuery,
    ModelError,
    ModelMismatch,
    NothingIndexed,
    PageNotFound,
    WikiholtError,
)
from wikiholt.search.hits import HitBuilder
from wikiholt.search.query import InterpretedQuery, QueryInterpreter
from wikiholt.search.ranking import (
    Candidate,
    Competition,
    get_competition,
    group_by_page,
    merge_channels,
    rank_candidates,
    with_likelihoods,
    with_related_likelihoods,
)
from wikiholt.search.request import MAX_HITS, SearchRequest
from wikiholt.search.reranking import RERANK_DEPTH, PageReranker, RerankConfig
from wikiholt.search.similar import find_nearest_pages, make_probe_vectors, score_similar
from wikiholt.search.title_match import TitleMatcher
from wikiholt.text.links import fold_path
from wikiholt.text.snippets import SentenceScorer

KEYWORD_CANDIDATES, VECTOR_CANDIDATES = 50, 100
"""Pages that words put forward in a hybrid search, and the nearest chunks whose pages meaning does.

Fixed, so that asking for more hits only lengthens the list. The pages that words found are measured by meaning too, so
meaning need not reach far. See docs/adr for what other depths give.
"""

_MAX_CHUNKS = 1_000_000
"""More chunks than a hundred pages have."""

_NO_FILTER = PageFilter()
_DEFAULT_SCALE = CosineScale()

_LOG = logging.getLogger(__name__)


class Searcher:
    """Searches one wiki."""

    def __init__(
        self,
        index: WikiIndex,
        vector_cache: VectorCache,
        keyword_cache: KeywordCache | None,
        get_embedder: Callable[[], Embedder],
        *,
        get_head: Callable[[], str] | None,
        hit_builder: HitBuilder,
        language: str,
        scale: CosineScale = _DEFAULT_SCALE,
        rerank_config: RerankConfig | None = None,
        get_lexicon: Callable[[], Lexicon | None],
    ) -> None:
        self._index = index
        self._vector_cache = vector_cache
        self._keyword_cache = keyword_cache
        self._get_embedder = get_embedder
        self._get_head = get_head
        self._hit_builder = hit_builder
        self._scale = scale
        self._reranker = PageReranker(index, rerank_config) if rerank_config is not None else None
        self._interpreter = QueryInterpreter(index, language, get_lexicon)
        self._title_matcher = TitleMatcher(index.get_pages, language)
        self._state: IndexState | None = None

    def search(self, request: SearchRequest) -> SearchResult:
        """The best pages for the request; an error is raised, never answered with an empty list."""
        began = time.perf_counter()
        standing = self._get_state()
        worded = self._interpreter.interpret(request.query, request.where, self._is_known_word)
        query = worded.query
        if query.excluded and not query:
            raise InvalidQuery("the query only says what to leave out", hint="say also what to look for")
        if request.mode is SearchMode.KEYWORD and not query:
            raise InvalidQuery("there is no word in the query", hint="write letters or digits, or search by meaning")
        if request.rerank and self._reranker is None:
            raise InvalidQuery(
                "no reranker is set", hint="set rerank.model (docs/models.md names one), or leave rerank out"
            )
        run = _SearchContext(worded, request, self._find_allowed_pages(request, worded), standing.version)
        if worded.lexicon_unavailable:
            run.degrade("the wiki's words are not all at hand; slips and compounds were not looked for")
        if request.rerank and request.mode is SearchMode.KEYWORD:
            run.notes.append("what is found by words alone is not reranked")
        best = self._find_best(run, standing.recipe.fingerprint)
        return self._build_result(run, best, standing, began)

    def find_similar(self, path: str, n: int = 5, where: PageFilter = _NO_FILTER) -> SearchResult:
        """The pages whose passages are nearest to those of the page with this path, which is left out."""
        began = time.perf_counter()
        request = SearchRequest(path, n, SearchMode.SEMANTIC, where)
        standing = self._get_state()
        page = self._get_page(path)
        allowed = self._index.filter_page_ids(where)
        others = allowed if allowed is None else allowed[allowed != page.page_id]
        run = _SearchContext(InterpretedQuery(KeywordQuery(), KeywordQuery(), ""), request, others, standing.version)
        own = self._index.get_page_vectors([page.page_id]).vectors
        if not len(own):
            run.notes.append("this page has no passage that others could be like")
        best = with_related_likelihoods(self._find_similar_pages(run, page, own)[:n]) if len(own) else []
        return self._build_result(run, best, standing, began, excluded_count=1)

    def _build_result(
        self,
        context: "_SearchContext",
        candidates: Sequence[Candidate],
        state: IndexState,
        began: float,
        excluded_count: int = 0,
    ) -> SearchResult:
        request = context.request
        if state.revision is None:
            context.degrade("the index is being built; not every page is in it yet")
        hits = tuple(
            self._hit_builder.build(context.interpreted.expanded, context.found_by, candidates, context.sentence_scorer)
        )
        head = self._get_head_revision(context)
        checked = self._get_head is not None
        return SearchResult(
            query=request.query,
            mode=request.mode,
            hits=hits,
            total=state.pages - excluded_count if context.allowed is None else len(context.allowed),
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            indexed_revision=state.revision,
            head_revision=head,
            stale=checked and head != state.revision,
            degraded=context.degraded,
            nothing_relevant=all(hit.confidence is Confidence.LOW for hit in hits),
            notes=tuple(context.notes),
            did_you_mean=context.interpreted.did_you_mean,
            reranked=context.reranked,
        )

    @property
    def page_count(self) -> int:
        """The pages of the wiki when it was last searched."""
        return self._state.pages if self._state is not None else 0

    def _get_state(self) -> IndexState:
        """The index's state, counted again only when its version has changed."""
        version = self._index.get_version()
        if self._state is None or self._state.version != version:
            self._state = self._index.get_state()
        if not self._state.pages:
            raise NothingIndexed("this wiki has no indexed page", hint="run `wikiholt sync` and look at what it says")
        return self._state

    def _find_allowed_pages(self, request: SearchRequest, interpreted: InterpretedQuery) -> IntArray | None:
        """The pages that may be found: those that pass the filter, hold the phrases and lack what is excluded."""
        allowed = self._index.filter_page_ids(request.where)
        demands = interpreted.get_requirements(phrases=request.mode is not SearchMode.SEMANTIC)
        if not demands:
            return allowed
        holding = reduce(np.union1d, map(self._index.find_matching_page_ids, demands))
        return holding if allowed is None else np.intersect1d(allowed, holding, assume_unique=True)

    def _find_best(self, context: "_SearchContext", fingerprint: str) -> list[Candidate]:
        """As many pages as are asked for, each with how likely it is what was asked for."""
        if context.allowed is not None and not len(context.allowed):
            return []
        request = context.request
        shares = (
            self._get_keyword_shares(context)
            if request.mode is not SearchMode.SEMANTIC and context.interpreted.query
            else {}
        )
        vector = self._embed_query(context, fingerprint) if request.mode is not SearchMode.KEYWORD else None
        mode = context.found_by = request.mode if vector is not None else SearchMode.KEYWORD
        found = rank_candidates(mode, self._find_candidates(context, vector, shares))
        among = get_competition(mode, found)
        best = self._rerank(context, found, among) if vector is not None else found
        if mode is SearchMode.HYBRID and vector is not None and len(best) < request.n:
            best = best + self._fill_by_meaning(context, vector, best)
        return with_likelihoods(mode, best[: request.n], among)

    def _find_candidates(
        self, context: "_SearchContext", vector: FloatArray | None, shares: Mapping[int, float]
    ) -> list[Candidate]:
        """The pages that compete, in no order; enough of them to tell how far the best stand out."""
        if vector is None:
            return self._with_title_overlap(context, merge_channels((), shares, {}))
        per_page = context.request.chunks_per_page
        if context.request.mode is SearchMode.SEMANTIC:
            # The first page has a rival here, however few hits are asked for and however many are its own.
            return self._search_by_meaning(
                context,
                vector,
                max(context.request.n, per_page + 1, RERANK_DEPTH if self._should_rerank(context) else 0),
            )
        meaning = group_by_page(
            self._search_vectors(context, vector, VECTOR_CANDIDATES, context.allowed), per_page, self._scale
        )
        return self._with_title_overlap(
            context, merge_channels(meaning, shares, self._search_page_vectors(context, vector, meaning, shares))
        )

    def _should_rerank(self, context: "_SearchContext") -> bool:
        return self._reranker is not None and context.request.rerank is not False

    def _rerank(
        self, context: "_SearchContext", candidates: list[Candidate], competition: Competition
    ) -> list[Candidate]:
        """The best of them read again by the reranker, where there is one and it is wanted."""
        if self._reranker is None or context.request.rerank is False or not candidates:
            return candidates
        found = self._reranker.rerank(context.interpreted.text, context.request.mode, candidates, competition)
        context.reranked = not found.error
        if found.error:
            context.degrade(found.error)
        return found.candidates

    def _with_title_overlap(self, context: "_SearchContext", candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with how far the query names each."""
        page_ids = (candidate.page_id for candidate in candidates)
        names = self._title_matcher.score_titles(
            context.interpreted.query, page_ids, context.version, context.interpreted.variants
        )
        return [candidate._replace(title_overlap=names.get(candidate.page_id, 0.0)) for candidate in candidates]

    def _get_page(self, path: str) -> StoredPage:
        """The indexed page with this path, or the only one whose path differs in case alone."""
        page = self._index.find_page(path)
        if page is not None:
            return page
        wanted = path.strip("/").casefold()
        found = [each for each in self._index.find_pages_by_key([fold_path(wanted)]) if wanted in _get_names(each)]
        if len(found) != 1:
            raise PageNotFound(
                f"there is no page {path[:200]!r} in the index", hint="list the pages; a new one is indexed by a sync"
            )
        return found[0]

    def _find_similar_pages(self, context: "_SearchContext", page: StoredPage, own: FloatArray) -> list[Candidate]:
        """Pages near to one of the page's passages or to their middle, then judged by all of their passages."""
        if context.allowed is not None and not len(context.allowed):
            return []
        # Its own passages are the nearest of all and must not crowd out the others.
        limit = VECTOR_CANDIDATES + (len(own) if context.allowed is None else 0)
        looked_near = make_probe_vectors(own)
        near = [self._search_vectors(context, probe, limit, context.allowed) for probe in looked_near]
        looked_at = find_nearest_pages(near, page.page_id)
        best = rank_candidates(
            SearchMode.SEMANTIC, score_similar(own, self._index.get_page_vectors(looked_at), self._scale)
        )
        if len(best) >= context.request.n:
            return best
        known = {page.page_id, *looked_at}
        further = self._search_by_meaning(context, looked_near[0], context.request.n + len(known))
        return best + [each for each in further if each.page_id not in known]

    def _embed_query(self, context: "_SearchContext", fingerprint: str) -> FloatArray | None:
        """The query's vector; None where a hybrid search has to do without, since the model failed or is another."""
        try:
            embedder = self._get_embedder()
            if embedder.fingerprint != fingerprint:
                raise ModelMismatch(
                    f"the index was built with {fingerprint}, not with {embedder.fingerprint}",
                    hint="run `wikiholt sync` to build it with the model that is set now",
                )
            vector = embedder.embed_query(context.interpreted.text)
            context.sentence_scorer = (
                embedder.make_sentence_scorer(context.interpreted.text)
                if isinstance(embedder, SupportsSentenceScoring)
                else None
            )
            return vector
        except ModelError as error:
            if context.request.mode is SearchMode.SEMANTIC:
                raise
            _LOG.warning("searched by words alone: %s", error.message)
            context.degrade(f"searched by words alone, for the model cannot be used ({error.code})")
            return None

    def _is_known_word(self, word: str) -> bool:
        """Whether the model knows the word: then it is no slip, though no page holds it."""
        try:
            return self._get_embedder().is_known_word(word.lower())
        except ModelError:
            return False

    def _get_keyword_shares(self, context: "_SearchContext") -> dict[int, float]:
        """The pages found by words, each with its share of the best possible score."""
        depth = MAX_HITS if context.request.mode is SearchMode.KEYWORD else KEYWORD_CANDIDATES
        if self._keyword_cache is not None:
            try:
                self._keyword_cache.refresh()
                if self._keyword_cache.version is not None:
                    # `allowed` has left out what the query excludes.
                    words = self._keyword_cache
                    return context.interpreted.compute_shares(
                        lambda asked: words.search(replace(asked, excluded=()), depth, context.allowed),
                        lambda asked: words.get_max_score(replace(asked, excluded=())),
                    )
            except CacheCannotAnswer:
                pass
            except DatabaseUnavailable:
                raise  # the index is there too
            except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the truth answers
                _LOG.warning("the word cache failed (%s); the index answers", error)
                context.degrade("the word cache failed; answered from the index itself")
        return context.interpreted.compute_shares(
            lambda asked: self._index.search_keywords(asked, depth, context.request.where),
            self._index.get_max_keyword_score,
        )

    def _search_by_meaning(self, context: "_SearchContext", vector: FloatArray, page_count: int) -> list[Candidate]:
        """The nearest pages: chunks are asked for until there are enough pages or no more chunks."""
        limit = page_count * 3
        while True:
            near = self._search_vectors(context, vector, limit, context.allowed)
            candidates = group_by_page(near, context.request.chunks_per_page, self._scale)
            if len(candidates) >= page_count or len(near.chunk_ids) < limit:
                return candidates[:page_count]
            limit *= 4

    def _fill_by_meaning(
        self, context: "_SearchContext", vector: FloatArray, candidates: Sequence[Candidate]
    ) -> list[Candidate]:
        """The pages that come after those both channels put forward, for whoever asks for so many: by meaning."""
        known = {candidate.page_id for candidate in candidates}
        found = self._search_by_meaning(context, vector, context.request.n + len(known))
        return [candidate for candidate in found if candidate.page_id not in known]

    def _search_vectors(
        self, context: "_SearchContext", vector: FloatArray, limit: int, page_ids: IntArray | None
    ) -> VectorHits:
        try:
            if not context.refreshed:
                self._vector_cache.refresh()
                context.refreshed = True
            if self._vector_cache.version is not None:
                near = self._vector_cache.search(vector, limit, page_ids)
                if near.degraded:
                    context.degrade("part of the vector cache is away; answered by exact scores alone")
                return near
            context.degrade("the vector cache is being built; answered from the index itself")
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.warning("the vector cache failed (%s); the index answers", error)
            context.degrade("the vector cache failed; answered from the index itself")
        return self._index.search_vectors(vector, limit, page_ids)

    def _search_page_vectors(
        self, context: "_SearchContext", vector: FloatArray, meaning: Sequence[Candidate], shares: Mapping[int, float]
    ) -> Mapping[int, Sequence[Candidate]]:
        """The nearest chunks of the pages that words alone found, so that both channels judge every page."""
        known = {candidate.page_id for candidate in meaning}
        lacking = np.array(sorted(page_id for page_id in shares if page_id not in known), np.int64)
        if not len(lacking):
            return {}
        near = self._search_vectors(context, vector, _MAX_CHUNKS, lacking)
        found: defaultdict[int, list[Candidate]] = defaultdict(list)
        for candidate in group_by_page(near, context.request.chunks_per_page, self._scale):
            found[candidate.page_id].append(candidate)
        return found

    def _get_head_revision(self, context: "_SearchContext") -> str | None:
        """HEAD now; when the repository cannot be read the answer still stands, and says so."""
        if self._get_head is None:
            context.notes.append("HEAD was not looked at (search.stale_check is off)")
            return None
        try:
            return self._get_head()
        except WikiholtError as error:
            # The message may name a path of this machine, and notes travel to visitors.
            context.notes.append(f"HEAD is unknown, for the repository cannot be read ({error.code})")
            return None


@dataclass(slots=True)
class _SearchContext:
    """What one search learns on its way."""

    interpreted: InterpretedQuery
    request: SearchRequest
    allowed: IntArray | None
    version: int
    notes: list[str] = field(default_factory=list)
    degraded: bool = False
    refreshed: bool = False
    reranked: bool = False
    found_by: SearchMode = SearchMode.SEMANTIC
    """By what pages were found in the end; without a model, a hybrid search finds by words."""
    sentence_scorer: SentenceScorer | None = None
    """What tells which sentence of a passage is closest to the query."""

    def degrade(self, note: str) -> None:
        self.degraded = True
        if note not in self.notes:
            self.notes.append(note)


def _get_names(page: StoredPage) -> tuple[str, str]:
    return page.path.casefold(), page.file.casefold()
