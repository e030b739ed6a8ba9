"""Searches one wiki: interpret the query, find pages, rank them, choose passages, present hits.

A Searcher has the index of one wiki and no access to others. It is safe to use from many threads and never waits for
a writer: it answers from the last committed state.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wikiholt.domain.answer import Answer
from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.domain.protocols import Embedder, KeywordCache, Lexicon, VectorCache
from wikiholt.domain.search import Confidence, Hit, PageFilter, SearchInterface, SearchMode, SearchResult, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import ModelError, PageNotFound, SourceMissing, WikiholtError
from wikiholt.search.answers import PASSAGES_PER_PAGE, SentenceJudge, build_answer, resolve_follow_up
from wikiholt.search.candidates import (
    VECTOR_CANDIDATES,
    NearPassages,
    WordMatches,
    find_allowed,
    find_by_words,
    find_candidates,
    find_more,
    find_passages,
    search_by_meaning,
)
from wikiholt.search.explanations import explain_hit
from wikiholt.search.filter_notes import explain_query
from wikiholt.search.hits import CollapsedPages, HitBuilder, ShownPage, choose_passages
from wikiholt.search.index_reader import IndexReader, IndexView
from wikiholt.search.query import EmbeddedQuery, Query, QueryEmbedder, QueryInterpreter, StartedQuery, check_query
from wikiholt.search.ranking import (
    Candidate,
    Candidates,
    judge_answer,
    move_named,
    rank_candidates,
    rate_candidates,
    to_candidates,
    with_likelihoods,
    with_name_likelihoods,
)
from wikiholt.search.request import MAX_HITS, MIN_COMPARED, IndexVersion, SearchRequest
from wikiholt.search.reranking import PageReranker, RerankConfig, should_rerank
from wikiholt.search.similar_pages import (
    find_copies,
    find_nearest_pages,
    make_probe_vectors,
    score_similar,
    with_related_likelihoods,
)
from wikiholt.search.sort_order import BoostRule, HitOrder
from wikiholt.text.keyword_query import parse_fields, to_plain_query
from wikiholt.text.links import fold_path
from wikiholt.text.synonym_rules import SynonymRules

if TYPE_CHECKING:  # few installations use it
    from wikiholt.search.answer_writer import AnswerDraft, AnswerWriter

ANSWER_PASSAGES = 12
"""Passages that are found for an answer, so that there are several close pages to name."""
_NO_FILTER = PageFilter()
_DEFAULT_SCALE = CosineScale()

_LOG = logging.getLogger(__name__)


class Ranked(NamedTuple):
    """The pages of the requested hits, the passages that were read to find them, and how they were ranked."""

    candidates: Sequence[Candidate]
    passages: NearPassages | None = None
    """None if each hit shows the passage that was found."""
    answer: float = 0.0
    """How likely the wiki has an answer."""
    reranked: bool = False


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
        synonym_rules: Sequence[str] = (),
        get_seconds_left: Callable[[], float | None] = lambda: None,
        on_wanted: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`get_seconds_left` is the time until all pages are embedded; `on_wanted` gets the files to embed first."""
        self._index = index
        self._vector_cache = vector_cache
        self._keyword_cache = keyword_cache
        self._query_embedder = QueryEmbedder(get_embedder)
        self._get_head = get_head
        self._hit_builder = hit_builder
        self._language = language
        self._scale = scale
        self._reranker = PageReranker(index, rerank_config, hit_builder.dialect) if rerank_config is not None else None
        self._rerank_config = rerank_config
        self._synonym_rules = synonym_rules
        self._make_interpreter = partial(QueryInterpreter, index, language, get_lexicon)
        self._interpreter = self._make_interpreter(SynonymRules(tuple(synonym_rules)))
        self._boost_rules = boost_rules
        self._get_seconds_left = get_seconds_left
        self._on_wanted = on_wanted
        self._view: IndexView | None = None
        self.page_count = 0
        """The number of pages at the last search."""

    def start(self, request: SearchRequest) -> StartedQuery | None:
        """Start to embed the query in another thread, for `search`. Raises InvalidQuery."""
        if request.mode is SearchMode.KEYWORD:
            return None
        return self._query_embedder.start(to_plain_query(parse_fields(request.query).text))

    def search(
        self,
        request: SearchRequest,
        *,
        interface: SearchInterface | None = None,
        known: IndexVersion | None = None,
        started: StartedQuery | None = None,
    ) -> SearchResult:
        """The best pages for the request. Failures raise; an empty list means that nothing was found.

        The model runs until its vector is needed, if the query was started before.
        """
        began = time.perf_counter() if started is None else started.began
        if self._rerank_config is not None:
            request = self._rerank_config.limit(request, interface, self._language)
        fields = parse_fields(request.query)
        with self._index.open_search():
            reader = self._open_reader(known)
            request = replace(request, where=fields.add_to(request.where))
            query = self._interpreter.interpret(request, self._query_embedder.is_known_word)
            has_words = bool(fields.text.strip())
            is_listing = bool(fields.any_of) and not has_words
            if is_listing:  # every page of a listing is asked for
                query = replace(query, request=(request := replace(request, collapse=False)))
            if not is_listing:
                check_query(query, has_words=has_words, has_reranker=self._reranker is not None)
            if query.lexicon_unavailable:
                reader.report_fault("the lexicon is unavailable; typos were not corrected and compounds not matched")
            query = replace(query, allowed=find_allowed(reader, query))
            searched = _leave_out_pending(reader, query) if request.mode is SearchMode.SEMANTIC else query
            notes = list(explain_query(reader, query, fields.text))
            if request.rerank and request.mode is SearchMode.KEYWORD:
                notes.append("keyword results are not reranked")
            order = HitOrder(self._index, request, self._boost_rules, reader.view.overrides)
            embedded: EmbeddedQuery | None = None
            if is_listing and query.allowed is not None:
                ranked = Ranked(order.list_newest(query.allowed))
            elif searched.has_no_page:
                ranked = Ranked(())
            else:
                words = find_by_words(reader, searched)
                if not self._is_pending(reader, searched, words):
                    embedded = self._embed_query(reader, searched, started)
                    searched = _leave_out_pending(reader, searched) if embedded else searched
                ranked = self._rank(reader, searched, words, embedded.vector if embedded else None, order)
            return self._present(reader, query, ranked, embedded, known, began, notes=notes)

    def make_answer_request(
        self, question: str, previous: str, where: PageFilter = _NO_FILTER, *, explain: bool = False
    ) -> SearchRequest:
        """The search for an answer. A question without words of its own is asked with those of the previous one."""
        query = resolve_follow_up(question, previous, self._language)
        return SearchRequest(
            query, ANSWER_PASSAGES, where=where, chunks_per_page=PASSAGES_PER_PAGE, explain=explain, collapse=True
        )

    def answer(self, result: SearchResult, question: str) -> Answer:
        """The sentences of the hits of such a search that answer. Reads no page."""
        text = self._interpreter.make_model_text(parse_fields(result.did_you_mean or result.query).text)
        score = None
        with suppress(ModelError):  # the result has a note about it
            score = self._query_embedder.make_sentence_scorer(text)
        judge = SentenceJudge(text, self._language, self._hit_builder.dialect, self._scale, score)
        return replace(build_answer(result, judge), question=question)

    def start_writing(self, answer: Answer, writer: "AnswerWriter") -> "AnswerDraft | None":
        """Prepare to let a language model write from the passages of an answer; None if nothing relevant was found."""
        return writer.start(answer, self._language, self._hit_builder.dialect)

    def find_similar(
        self,
        path: str,
        n: int = 5,
        where: PageFilter = _NO_FILTER,
        *,
        collapse: bool = False,
        known: IndexVersion | None = None,
    ) -> SearchResult:
        """The pages whose passages are nearest to those of the page with this path, without the page itself; with
        `collapse`, also without its near-duplicates."""
        began = time.perf_counter()
        reader = self._open_reader(known)
        # The path of a page may be blank, which no query is.
        request = SearchRequest(
            f"{path}.md" if path.isspace() else path, n, SearchMode.SEMANTIC, where, collapse=collapse
        )
        page = self._get_page(path)
        allowed = reader.view.filter_page_ids(where)
        query = Query(request, allowed=allowed if allowed is None else allowed[allowed != page.page_id])
        own = self._index.get_page_vectors([page.page_id]).vectors
        query = _leave_out_pending(reader, query)
        notes = [] if len(own) else ["this page has no passage to compare"]
        has_similar = own.any() and not query.has_no_page
        similar = self._find_similar_pages(reader, query, page, own) if has_similar else []
        if collapse:
            copies = find_copies(self._index, page, [candidate.page_id for candidate in similar[: 2 * n]])
            similar = [candidate for candidate in similar if candidate.page_id not in copies]
            notes += [f"near-duplicates of this page are left out: {', '.join(copies.values())}"] if copies else []
        ranked = Ranked(with_related_likelihoods(similar[request.ranked], self._scale))
        return self._present(reader, query, ranked, None, known, began, notes=notes, excluded_count=1)

    # ── the steps ────────────────────────────────────────────────────────────────────────────────

    def _open_reader(self, known: IndexVersion | None) -> IndexReader:
        """Read the version that the caller has read, or else the last committed one. Raises NothingIndexed."""
        view = self._view
        is_known = view is not None and known is not None and view.state.version == known.version
        if view is None or not (is_known or view.state.version == self._index.get_version()):
            view = IndexView(self._index, self._language)
            rules = view.read_synonym_rules(self._synonym_rules)
            if rules != self._interpreter.rules:
                self._interpreter = self._make_interpreter(rules)
            self._view, self.page_count = view, view.state.pages
        return IndexReader(view, self._vector_cache, self._keyword_cache)

    def _embed_query(self, reader: IndexReader, query: Query, started: StartedQuery | None) -> EmbeddedQuery | None:
        """The query's vector. None in a keyword search, and in a hybrid one if the model failed or is another one."""
        if query.request.mode is SearchMode.KEYWORD:
            return None
        try:
            return self._query_embedder.embed(query.text, reader.view.state.recipe.fingerprint, started)
        except ModelError as error:
            if query.request.mode is SearchMode.SEMANTIC:
                raise
            _LOG.warning("searched by keyword only: %s", error.message)
            reader.report_fault(f"searched by keyword only: the model cannot be used ({error.code})")
            return None

    def _is_pending(self, reader: IndexReader, query: Query, words: WordMatches) -> bool:
        """Whether pages that compete by their words have no vectors yet: they would rank below those that have. They
        are embedded first."""
        pending = reader.view.pending_page_ids.intersection(words.competing)
        if not pending or query.request.mode is SearchMode.SEMANTIC:
            return False
        pages = reader.view.get_pages([page_id for page_id in words.competing if page_id in pending])
        self._on_wanted([known.page.file for known in pages.values()])
        return query.request.mode is SearchMode.HYBRID

    def _rank(
        self, reader: IndexReader, query: Query, words: WordMatches, vector: FloatArray | None, order: HitOrder
    ) -> Ranked:
        """Find the pages that compete, rank them, and rate those of the requested hits."""
        request, shape, scale = query.request, query.shape, self._scale
        mode = request.mode if vector is not None else SearchMode.KEYWORD
        # At least one more page than the best one can fill, so that it has a competitor for every n.
        found = find_candidates(
            reader, query, words, vector, request.chunks_per_page + 1 if order.is_plain else MAX_HITS
        )
        rules_page = self._interpreter.rules.page_id
        left_out = -1 if rules_page in words.named else rules_page

        def rank(candidates: Candidates) -> Candidates:
            """The candidates in order. A page of rules is found only by its name."""
            return rank_candidates(mode, candidates[candidates["page_id"] != left_out], shape, scale)

        best = rank(found.candidates)
        verdict = judge_answer(mode, best, shape, scale)
        reranked = False
        if self._reranker is not None and vector is not None and should_rerank(request, best, verdict, shape):
            best, fault = self._reranker.rerank(query.text, request.mode, best, verdict)
            reranked = not fault
            if fault:
                reader.report_fault(fault)
        best = move_named(best, words.named)
        fixed_count = len(best) if vector is not None else MAX_HITS
        if len(best) < request.depth:
            more = find_more(reader, query, words, found)
            best = np.concatenate((best, rank(more.candidates)))
            found = more
        if order.is_plain:
            best = best[: request.ranked.stop]
        likely = with_name_likelihoods(with_likelihoods(best, verdict), words.named)
        is_by_distance = request.chunks_per_page > 1 and mode is SearchMode.SEMANTIC
        return Ranked(
            order.select(rate_candidates(likely, verdict), fixed_count, query.allowed),
            None if is_by_distance else found.passages,
            verdict.answer,
            reranked,
        )

    def _present(
        self,
        reader: IndexReader,
        query: Query,
        ranked: Ranked,
        embedded: EmbeddedQuery | None,
        known: IndexVersion | None,
        began: float,
        *,
        notes: Sequence[str],
        excluded_count: int = 0,
    ) -> SearchResult:
        """Choose the passages to show, and build the hits and the result."""
        request, state = query.request, reader.view.state
        choose = self._choose_collapsed if request.collapse else self._choose_passages
        shown = choose(reader, query, ranked)
        hits = tuple(self._hit_builder.build(query, shown, embedded.sentence_scorer if embedded else None))
        if request.explain:
            hits = _explain_hits(hits, shown, query, ranked)
        seconds_left = self._get_seconds_left() if state.pending_chunks else None
        if state.revision is None:
            reader.report_fault("the index is being built; some pages are missing")
        if state.pending_chunks:
            reader.report_fault(format_readiness(state.embedded_share, seconds_left))
            hits = tuple(replace(hit, confidence=Confidence.UNKNOWN) for hit in hits)
        is_complete = state.revision is not None and not state.pending_chunks
        is_irrelevant = all(hit.confidence is Confidence.LOW for hit in hits)
        head, head_note = self._read_head(state.version, known)
        return SearchResult(
            query=request.query,
            mode=request.mode,
            hits=hits,
            considered=state.pages - excluded_count if query.allowed is None else len(query.allowed),
            took_ms=round((time.perf_counter() - began) * 1000, 3),
            indexed_revision=state.revision,
            head_revision=head,
            stale=self._get_head is not None and head != state.revision,
            degraded=bool(reader.faults),
            # Later pages of hits say nothing about the first.
            nothing_relevant=is_complete and is_irrelevant and not request.offset,
            notes=(*notes, *reader.faults, *filter(None, [head_note])),
            did_you_mean=query.did_you_mean,
            reranked=ranked.reranked,
            offset=request.offset,
            facets=self._index.get_facets(request.where, request.facets).requested if request.facets else (),
            answer=ranked.answer,
            meaning_ready=state.embedded_share,
            seconds_left=seconds_left,
        )

    def _choose_passages(self, reader: IndexReader, query: Query, ranked: Ranked) -> list[ShownPage]:
        page_ids = [candidate.page_id for candidate in ranked.candidates]
        nearest = find_passages(reader, ranked.passages, page_ids) if ranked.passages is not None and page_ids else {}
        pages = {page_id: known_page.page for page_id, known_page in reader.view.get_pages(page_ids).items()}
        return choose_passages(self._index, query, ranked.candidates, pages, nearest, self._scale)

    def _choose_collapsed(self, reader: IndexReader, query: Query, ranked: Ranked) -> list[ShownPage]:
        """The passages of the requested hits. More pages than these and MIN_COMPARED are read only if there are
        near-duplicates."""
        request, left, collapsed = query.request, list(ranked.candidates), CollapsedPages()
        missing = max(request.depth, MIN_COMPARED)
        while left and missing > 0:
            # The passages of a page are chosen together.
            count = missing if request.chunks_per_page == 1 else len(left)
            collapsed.add(self._choose_passages(reader, query, ranked._replace(candidates=left[:count])))
            left, missing = left[count:], request.depth - len(collapsed)
        return collapsed.list_pages()[request.offset : request.depth]

    def _read_head(self, version: int, known: IndexVersion | None) -> tuple[str | None, str]:
        """HEAD of the repository, or None and a note that says why it is unknown. The one that the caller has read is
        used if the index still has that version."""
        if self._get_head is None:
            return None, "HEAD was not checked (search.stale_check is off)"
        if known is not None and known.head is not None and known.version == version:
            return known.head, ""
        try:
            return self._get_head(), ""
        except WikiholtError as error:
            # Report only the code: the message may contain a local path, and notes are public.
            state = "is missing" if isinstance(error, SourceMissing) else "cannot be read"
            note = f"the folder or repository of this wiki {state} ({error.code}); recent changes are unknown"
            return None, note

    # ── similar pages ────────────────────────────────────────────────────────────────────────────

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

    def _find_similar_pages(
        self, reader: IndexReader, query: Query, page: StoredPage, own: FloatArray
    ) -> list[Candidate]:
        """Pages near one of the page's passages or their mean, ranked by all of their passages."""
        # The page's own passages are the nearest and must not crowd out the others.
        limit = VECTOR_CANDIDATES + (len(own) if query.allowed is None else 0)
        probes = make_probe_vectors(own)
        nearest = find_nearest_pages(
            [reader.search_vectors(probe, limit, query.allowed) for probe in probes], page.page_id
        )
        best = score_similar(own, self._index.get_page_vectors(nearest))
        if len(best) >= query.request.n:
            return best
        known = {page.page_id, *nearest}
        more, _ = search_by_meaning(reader, query, probes[0], query.request.n + len(known))
        return best + [each for each in to_candidates(more) if each.page_id not in known]


def _leave_out_pending(reader: IndexReader, query: Query) -> Query:
    """The query for the pages that are embedded."""
    pending, allowed = reader.view.pending_page_ids, query.allowed
    if not pending:
        return query
    if allowed is None:
        allowed = np.array(sorted(page.page_id for page in reader.index.list_pages(_NO_FILTER, None)[1]), np.int64)
    return replace(query, allowed=np.setdiff1d(allowed, np.array(sorted(pending), np.int64)))


def format_readiness(share: float, seconds_left: float | None) -> str:
    """How many passages are found by their meaning, and when all are: `search by meaning: 12 % ready, 2 min left`."""
    text = f"search by meaning: {int(100 * share)} % ready"
    if seconds_left is None:
        return text
    minutes = round(seconds_left / 60)
    return f"{text}, {f'{minutes} min' if minutes else f'{max(1, round(seconds_left))} s'} left"


def _explain_hits(hits: tuple[Hit, ...], shown: Sequence[ShownPage], query: Query, ranked: Ranked) -> tuple[Hit, ...]:
    boosts = {row.page.path: row.candidate.boost for row in shown}
    explanations = (
        explain_hit(hit, ranked.answer, boosts[hit.path], query.synonyms, reranked=ranked.reranked) for hit in hits
    )
    return tuple(replace(hit, explanation=text) for hit, text in zip(hits, explanations, strict=True))
