"""Searches one wiki: keyword and semantic search, merged, with one hit per page, a snippet and freshness.

A Searcher has the index of one wiki and no access to others. It is safe to use from many threads and never waits for
a writer: it answers from the last committed state.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from wikiholt.domain.index import CosineScale, FloatArray, IndexState, VectorHits
from wikiholt.domain.protocols import Embedder, KeywordCache, Lexicon, VectorCache
from wikiholt.domain.search import Confidence, KeywordQuery, PageFilter, SearchMode, SearchResult, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import ModelError, NothingIndexed, PageNotFound
from wikiholt.search.filter_notes import FilterNotes
from wikiholt.search.hits import HitBuilder
from wikiholt.search.keyword_channel import AllowedPages, KeywordChannel
from wikiholt.search.own_names import (
    add_named_pages,
    find_missing_pages,
    find_named_pages,
    move_named_pages,
    with_name_likelihoods,
)
from wikiholt.search.passages import LEAD_PASSAGES, PASSAGES_PER_PAGE, PassageChooser, group_passages
from wikiholt.search.query import InterpretedQuery, QueryInterpreter, check_query
from wikiholt.search.query_embedding import QueryEmbedder, StartedQuery
from wikiholt.search.ranking import (
    Candidate,
    TitleMatch,
    Verdict,
    group_by_page,
    judge_answer,
    merge_channels,
    rank_candidates,
    rate_candidates,
    with_likelihoods,
    with_page_evidence,
)
from wikiholt.search.request import MAX_HITS, MAX_OFFSET, IndexVersion, SearchRequest
from wikiholt.search.reranking import PageReranker, RerankConfig, should_rerank
from wikiholt.search.search_context import SearchContext, read_head
from wikiholt.search.similar_pages import (
    find_nearest_pages,
    make_probe_vectors,
    score_similar,
    with_related_likelihoods,
)
from wikiholt.search.sort_order import BoostRule, HitOrder
from wikiholt.search.title_match import TitleMatcher
from wikiholt.search.vector_channel import VectorChannel
from wikiholt.text.keyword_query import to_plain_query
from wikiholt.text.links import fold_path
from wikiholt.text.query_fields import ParsedFields, parse_fields

KEYWORD_CANDIDATES, VECTOR_CANDIDATES = 50, 100
"""Pages from keyword search, and chunks from vector search, that compete in a search.

Fixed, so that a larger n only lengthens the list. Pages found by keyword are also measured by meaning, so the vector
search need not be deep. See docs/adr for the results of other depths.
"""

KEYWORD_SHARES = 200
"""Pages from keyword search whose shares are known, so that pages found by meaning are also judged by their words."""

LIKELY_PAGES = 10
"""The nearest pages, of which all passages are compared if they are shown: the codes of a cache may miss one."""

_Passages = Mapping[int, Sequence[Candidate]]
_NO_FILTER = PageFilter()
_DEFAULT_SCALE = CosineScale()

_LOG = logging.getLogger(__name__)


def select_competing(shares: Mapping[int, float]) -> dict[int, float]:
    """The first of the shares: pages that compete because of their words alone."""
    return dict(islice(shares.items(), KEYWORD_CANDIDATES))


class Searcher:
    """Searches one wiki."""

    def __init__(
        self,
        index: WikiIndex,
        vector_cache: VectorCache | None,
        keyword_cache: KeywordCache | None,
        get_embedder: Callable[[], Embedder],
        *,
        get_head: Callable[[], str] | None,
        hit_builder: HitBuilder,
        language: str,
        scale: CosineScale = _DEFAULT_SCALE,
        rerank_config: RerankConfig | None = None,
        get_lexicon: Callable[[], Lexicon | None],
        boost_rules: Sequence[BoostRule] = (),
    ) -> None:
        self._index = index
        self._vectors = VectorChannel(index, vector_cache)
        self._keywords = KeywordChannel(index, keyword_cache)
        self._allowed_pages = AllowedPages(index, self._keywords)
        self._filter_notes = FilterNotes(index, self._allowed_pages)
        self._query_embedder = QueryEmbedder(get_embedder)
        self._get_head = get_head
        self._hit_builder = hit_builder
        self._scale = scale
        self._reranker = PageReranker(index, rerank_config, hit_builder.dialect) if rerank_config is not None else None
        self._interpreter = QueryInterpreter(index, language, get_lexicon)
        self._title_matcher = TitleMatcher(index.get_pages, language)
        self._order = HitOrder(index, boost_rules)
        self._state: IndexState | None = None

    def start(self, request: SearchRequest) -> StartedQuery | None:
        """Start to embed the query in another thread, for `search`. Raises InvalidQuery."""
        if request.mode is SearchMode.KEYWORD:
            return None
        return self._query_embedder.start(to_plain_query(parse_fields(request.query).text))

    def search(
        self, request: SearchRequest, *, known: IndexVersion | None = None, started: StartedQuery | None = None
    ) -> SearchResult:
        """The best pages for the request. Failures raise; an empty list means that nothing was found.

        The model runs until its vector is needed, if the query was started before.
        """
        began = time.perf_counter() if started is None else started.began
        fields = parse_fields(request.query)
        with self._index.open_search(lambda: self._interpreter.guess_query(request.query)):
            return self._search(request, fields, started, known, began)

    def _search(
        self,
        request: SearchRequest,
        fields: ParsedFields,
        started: StartedQuery | None,
        known: IndexVersion | None,
        began: float,
    ) -> SearchResult:
        state = self._get_state()
        head = read_head(self._get_head, state.version, known)
        request = replace(request, where=fields.add_to(request.where))
        interpreted = self._interpreter.interpret(request.query, request.where, self._query_embedder.is_known_word)
        has_words = bool(fields.text.strip())
        is_listing = bool(fields.any_of) and not has_words
        if not is_listing:
            check_query(request, interpreted, has_words=has_words, has_reranker=self._reranker is not None)
        allowed = self._allowed_pages.find(request, interpreted, state.version)
        context = SearchContext(interpreted, request, allowed, state.version, state.pages, head)
        if interpreted.lexicon_unavailable:
            context.degrade("the lexicon is unavailable; typos were not corrected and compounds not matched")
        context.notes += self._filter_notes.explain_words(fields.text, state.version)
        context.notes += self._filter_notes.explain_exclusions(request, interpreted, state.version)
        if allowed is not None and not len(allowed):
            context.notes += self._filter_notes.explain_empty(request.where, state.version)
        if request.rerank and request.mode is SearchMode.KEYWORD:
            context.notes.append("keyword results are not reranked")
        if is_listing and allowed is not None:
            best = self._order.list_newest(request, allowed)
        else:
            best = self._find_best(context, state.recipe.fingerprint, started)
        return self._build_result(context, best, state, began)

    def find_similar(
        self, path: str, n: int = 5, where: PageFilter = _NO_FILTER, *, known: IndexVersion | None = None
    ) -> SearchResult:
        """The pages whose passages are nearest to those of the page with this path, without the page itself."""
        began = time.perf_counter()
        state = self._get_state()
        # The path of a page may be blank, which no query is.
        request = SearchRequest(f"{path}.md" if path.isspace() else path, n, SearchMode.SEMANTIC, where)
        page = self._get_page(path)
        allowed = self._index.filter_page_ids(where)
        others = allowed if allowed is None else allowed[allowed != page.page_id]
        no_query = InterpretedQuery(KeywordQuery(), KeywordQuery(), "")
        head = read_head(self._get_head, state.version, known)
        context = SearchContext(no_query, request, others, state.version, state.pages, head)
        own = self._index.get_page_vectors([page.page_id]).vectors
        if not len(own):
            context.notes.append("this page has no passage to compare")
        best = with_related_likelihoods(self._find_similar_pages(context, page, own)[:n]) if len(own) else []
        return self._build_result(context, best, state, began, excluded_count=1)

    def _build_result(
        self,
        context: SearchContext,
        candidates: Sequence[Candidate],
        state: IndexState,
        began: float,
        excluded_count: int = 0,
    ) -> SearchResult:
        request = context.request
        if state.revision is None:
            context.degrade("the index is being built; some pages are missing")
        hits = tuple(
            self._hit_builder.build(
                PassageChooser(
                    context.interpreted.expanded,
                    self._find_passages(context, candidates),
                    request.chunks_per_page,
                ),
                candidates,
                self._title_matcher.get_pages([candidate.page_id for candidate in candidates], context.version),
                context.sentence_scorer,
                context.matcher,
                has_lead=bool(context.interpreted.text) and not request.offset,
            )
        )
        head = context.head.revision
        if context.head.note:
            context.notes.append(context.head.note)
        return SearchResult(
            query=request.query,
            mode=request.mode,
            hits=hits,
            considered=state.pages - excluded_count if context.allowed is None else len(context.allowed),
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            indexed_revision=state.revision,
            head_revision=head,
            stale=self._get_head is not None and head != state.revision,
            degraded=context.degraded,
            # Later pages of hits say nothing about the first.
            nothing_relevant=not request.offset and all(hit.confidence is Confidence.LOW for hit in hits),
            notes=tuple(context.notes),
            did_you_mean=context.interpreted.did_you_mean,
            reranked=context.reranked,
            offset=request.offset,
            facets=self._index.get_facets(request.where, request.facets).requested if request.facets else (),
            answer=context.answer,
        )

    @property
    def page_count(self) -> int:
        """The number of pages at the last search."""
        return self._state.pages if self._state is not None else 0

    def _get_state(self) -> IndexState:
        """The index's state, read again only if its version has changed. Raises NothingIndexed."""
        version = self._index.get_version()
        if self._state is None or self._state.version != version:
            self._state = self._index.get_state()
        if not self._state.pages:
            raise NothingIndexed("this wiki has no indexed page", hint="run `wikiholt sync` and check its output")
        return self._state

    def _find_best(self, context: SearchContext, fingerprint: str, started: StartedQuery | None) -> list[Candidate]:
        """The candidates of the requested hits with their likelihoods."""
        if context.allowed is not None and not len(context.allowed):
            return []
        request = context.request
        shares = (
            self._get_keyword_shares(context)
            if request.mode is not SearchMode.SEMANTIC and context.interpreted.query
            else {}
        )
        context.named = find_named_pages(context, self._keywords.find_matching_page_ids)
        shares = add_named_pages(context.named, shares)
        if started is not None:
            # While the model runs, so that less is left to do after it.
            context.matcher = self._hit_builder.make_matcher(context.interpreted.expanded)
            competing = select_competing(shares)
            self._vectors.prepare(context, competing)
            self._score_titles(context, competing)
        vector = self._embed_query(context, fingerprint, started) if request.mode is not SearchMode.KEYWORD else None
        mode = context.found_by = request.mode if vector is not None else SearchMode.KEYWORD
        shape = context.interpreted.shape
        candidates = rank_candidates(mode, self._find_candidates(context, vector, shares), shape)
        verdict = judge_answer(mode, candidates, shape)
        context.answer = verdict.answer
        best = self._rerank(context, candidates, verdict) if vector is not None else candidates
        best = move_named_pages(best, context.named)
        if len(best) < request.depth:
            best = best + rank_candidates(mode, self._find_more(context, vector, best), shape)
        is_plain = self._order.is_plain(request, context.version)
        if is_plain:
            best = best[: request.depth]
        rated = rate_candidates(with_name_likelihoods(with_likelihoods(best, verdict), context.named), verdict)
        if is_plain:
            return rated[request.offset :]
        fixed_count = len(candidates) if vector is not None else MAX_HITS
        return self._order.select(request, rated, fixed_count, context.version, context.allowed)

    def _find_candidates(
        self, context: SearchContext, vector: FloatArray | None, shares: Mapping[int, float]
    ) -> list[Candidate]:
        """The pages that compete, unordered, and enough of them to measure the lead of the best."""
        if vector is None:
            return self._with_page_evidence(context, None, merge_channels((), shares, {}))
        if context.request.mode is SearchMode.SEMANTIC:
            # At least one more page than the best one can fill, so that it has a competitor for every n.
            is_plain = self._order.is_plain(context.request, context.version)
            page_count = context.request.chunks_per_page + 1 if is_plain else MAX_HITS
            found = self._search_by_meaning(context, vector, page_count, VECTOR_CANDIDATES)[:MAX_HITS]
            found += find_missing_pages(context, vector, self._vectors, self._scale, shares, found)
            return self._with_page_evidence(context, vector, found)
        hits = self._search_allowed_vectors(context, vector, VECTOR_CANDIDATES)
        meaning = group_by_page(hits, context.request.chunks_per_page, self._scale)
        by_keyword = select_competing(shares)
        nearest = self._search_page_vectors(context, vector, meaning, by_keyword)
        by_both = {near.page_id: shares[near.page_id] for near in meaning if near.page_id in shares}
        found = merge_channels(meaning, by_keyword | by_both, nearest)
        return self._with_page_evidence(context, vector, found)

    def _with_page_evidence(
        self, context: SearchContext, vector: FloatArray | None, candidates: Sequence[Candidate]
    ) -> list[Candidate]:
        """The candidates with the title match of the page, and with the cosine of the page as a whole."""
        page_ids = list(dict.fromkeys(candidate.page_id for candidate in candidates))
        cosines = self._vectors.score_pages(context, vector, page_ids) if vector is not None else {}
        has_titles = context.request.mode is not SearchMode.SEMANTIC
        return with_page_evidence(candidates, cosines, self._score_titles(context, page_ids) if has_titles else {})

    def _rerank(self, context: SearchContext, candidates: list[Candidate], verdict: Verdict) -> list[Candidate]:
        """Rerank the best candidates, if a reranker is configured and the request asks for it or they are unclear."""
        if self._reranker is None or not should_rerank(context.request, candidates, verdict):
            return candidates
        result = self._reranker.rerank(context.interpreted.text, context.request.mode, candidates, verdict)
        context.reranked = not result.error
        if result.error:
            context.degrade(result.error)
        return result.candidates

    def _score_titles(self, context: SearchContext, page_ids: Collection[int]) -> Mapping[int, TitleMatch]:
        """Page id → title match, at least of these pages. Each page is compared once per search."""
        known, interpreted = context.titles, context.interpreted
        missing = [page_id for page_id in page_ids if page_id not in known]
        if missing:
            found = self._title_matcher.score_titles(interpreted.query, missing, context.version, interpreted.variants)
            known.update(found)
        return known

    def _get_page(self, path: str) -> StoredPage:
        """The indexed page with this path, or the only one whose path differs only in case. Raises PageNotFound."""
        page = self._index.find_page(path)
        if page is not None:
            return page
        folded = path.strip("/").casefold()
        similar = self._index.find_pages_by_key([fold_path(folded)])
        pages = [page for page in similar if folded in (page.path.casefold(), page.file.casefold())]
        if len(pages) != 1:
            raise PageNotFound(
                f"there is no page {path[:200]!r} in the index", hint="list the pages; a sync indexes new ones"
            )
        return pages[0]

    def _find_similar_pages(self, context: SearchContext, page: StoredPage, own: FloatArray) -> list[Candidate]:
        """Pages near one of the page's passages or their mean, ranked by all of their passages."""
        if context.allowed is not None and not len(context.allowed):
            return []
        # The page's own passages are the nearest and must not crowd out the others.
        limit = VECTOR_CANDIDATES + (len(own) if context.allowed is None else 0)
        probes = make_probe_vectors(own)
        hits = [self._vectors.search(context, probe, limit, context.allowed) for probe in probes]
        nearest = find_nearest_pages(hits, page.page_id)
        best = score_similar(own, self._index.get_page_vectors(nearest), self._scale)
        if len(best) >= context.request.n:
            return best
        known = {page.page_id, *nearest}
        more = self._search_by_meaning(context, probes[0], context.request.n + len(known))
        return best + [candidate for candidate in more if candidate.page_id not in known]

    def _embed_query(self, context: SearchContext, fingerprint: str, started: StartedQuery | None) -> FloatArray | None:
        """The query's vector. None in a hybrid search if the model failed or differs from the index's model."""
        try:
            embedded = self._query_embedder.embed(context.interpreted.text, fingerprint, started)
            context.vector, context.sentence_scorer = embedded
            return embedded.vector
        except ModelError as error:
            if context.request.mode is SearchMode.SEMANTIC:
                raise
            _LOG.warning("searched by keyword only: %s", error.message)
            context.degrade(f"searched by keyword only: the model cannot be used ({error.code})")
            return None

    def _get_keyword_shares(self, context: SearchContext, depth: int = 0) -> dict[int, float]:
        """Page id → share of the best possible keyword score, of the best `depth` pages. Best first."""
        depth = depth or (MAX_HITS if context.request.mode is SearchMode.KEYWORD else KEYWORD_SHARES)
        return self._keywords.compute_shares(context, depth)

    def _search_by_meaning(
        self, context: SearchContext, vector: FloatArray, page_count: int, min_chunks: int = 0
    ) -> list[Candidate]:
        """The nearest pages: request more chunks until there are `page_count` pages, or more, or no more chunks."""
        limit = max(min_chunks, page_count * 3)
        while True:
            hits = self._search_allowed_vectors(context, vector, limit)
            candidates = group_by_page(hits, context.request.chunks_per_page, self._scale)
            if len(candidates) >= page_count or len(hits.chunk_ids) < limit:
                return candidates
            limit *= 4

    def _find_more(
        self, context: SearchContext, vector: FloatArray | None, candidates: Sequence[Candidate]
    ) -> list[Candidate]:
        """More pages than those that compete, if more hits are requested: by meaning, or else by keyword."""
        known = {candidate.page_id for candidate in candidates}
        more: list[Candidate] = []
        if vector is not None:
            page_count = context.request.depth + len(known)
            more = self._search_by_meaning(context, vector, page_count)[:page_count]
        elif len(known) >= MAX_HITS:
            shares = self._get_keyword_shares(context, MAX_OFFSET + MAX_HITS)
            more = self._with_page_evidence(context, None, merge_channels((), shares, {}))
        return [candidate for candidate in more if candidate.page_id not in known]

    def _search_allowed_vectors(self, context: SearchContext, vector: FloatArray, limit: int) -> VectorHits:
        """The passages nearest to the query, which are kept to choose the passages to show."""
        hits = self._vectors.search(context, vector, limit, context.allowed)
        context.nearest, context.has_all_passages = hits, len(hits.chunk_ids) < limit
        return hits

    def _search_page_vectors(
        self, context: SearchContext, vector: FloatArray, meaning: Sequence[Candidate], shares: Mapping[int, float]
    ) -> _Passages:
        """The nearest chunks of pages found only by keyword, so that both channels judge every page."""
        found_by_meaning = [candidate.page_id for candidate in meaning]
        context.likely_pages = frozenset(found_by_meaning[:LIKELY_PAGES])
        if not shares:
            return {}
        if context.nearest is not None and context.has_all_passages:
            context.page_hits = context.nearest
        else:
            context.page_hits = self._vectors.search_found(context, vector, shares)
        context.complete_pages = shares.keys()
        missing = shares.keys() - set(found_by_meaning)
        return group_passages(context.page_hits, context.request.chunks_per_page, self._scale, missing)

    def _find_passages(self, context: SearchContext, shown: Sequence[Candidate]) -> _Passages:
        """The nearest passages of the pages to show. Empty without a vector, or if the hits are ordered by distance."""
        is_by_distance = context.request.chunks_per_page > 1 and context.found_by is SearchMode.SEMANTIC
        if context.vector is None or context.nearest is None or is_by_distance or not shown:
            return {}
        page_ids = {candidate.page_id for candidate in shown}
        found: dict[int, list[Candidate]] = {}
        complete = page_ids & context.complete_pages
        if context.page_hits is not None and complete:
            found = group_passages(context.page_hits, LEAD_PASSAGES, self._scale, complete)
        if page_ids == complete:
            return found
        found |= group_passages(context.nearest, LEAD_PASSAGES, self._scale, page_ids - complete)
        # Three passages of a page among the nearest of all are mostly the nearest of the page.
        incomplete = [
            page_id
            for page_id in page_ids - complete
            if page_id in context.likely_pages or len(found.get(page_id, ())) < PASSAGES_PER_PAGE
        ]
        if context.has_all_passages or not incomplete:
            return found
        hits = self._vectors.search_pages(context, context.vector, incomplete)
        return found | group_passages(hits, LEAD_PASSAGES, self._scale, incomplete)
