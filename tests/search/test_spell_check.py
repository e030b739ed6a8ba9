"""A query with a typing error finds the page and gives a suggestion."""

import threading
from importlib.resources import files
from pathlib import Path

import pytest

from tests.search.spell_check_fixtures import SpellingFixture, VocabularyEmbedder
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search import query as search_query
from wikiholt.search import spell_check
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import is_english_word


@pytest.fixture(scope="module")
def spelling_wiki(tmp_path_factory: pytest.TempPathFactory) -> SpellingFixture:
    return SpellingFixture(tmp_path_factory.mktemp("house"))


def get_suggestion(
    spelling_wiki: SpellingFixture, query: str, where: PageFilter | None = None, mode: SearchMode = SearchMode.HYBRID
) -> str:
    handle = spelling_wiki.open_handle()
    answer = handle.search(SearchRequest(query, mode=mode, where=where or PageFilter()))
    handle.close()
    return answer.did_you_mean


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("kubernetse cluster", "kubernetes cluster"),
        ("kuberntes cluster", "kubernetes cluster"),
        ("kuberneetes cluster", "kubernetes cluster"),
        ("kubermetes cluster", "kubernetes cluster"),
        ("jubernetes cluster", "kubernetes cluster"),
        ("Kuberntes", "Kubernetes"),
        ("KUBERNTES", "KUBERNETES"),
        ("who orders tonner", "who orders toner"),
        ("the pritner asks", "the printer asks"),
        ("Geölt werden Dieln", "Geölt werden Dielen"),
        ("kücke fliesen", "küche fliesen"),
        ("кааалитка скрипит", ""),
        ("каалитка скрипит", "калитка скрипит"),
        ("self-hosted kubenetes", "self-hosted kubernetes"),
        ("where is the cofeemachine", ""),
        ("the coffeemachine", "the coffee machine"),
        ("hedge hog in october", "hedgehog in october"),
        ("deploymnet", "deployment"),
    ],
)
def test_an_error_of_one_letter_or_space_is_corrected(spelling_wiki: SpellingFixture, typed: str, wanted: str) -> None:
    assert get_suggestion(spelling_wiki, typed) == wanted


@pytest.mark.parametrize(
    "typed",
    [
        "kubernetes cluster",
        "boat",
        '"kuberntes" cluster',
        "cluster -kuberntes",
        "cluster +kuberntes",
        "kuberntes2",
        "kube_rntes",
        "getKuberntes",
        "--kuberntes",
        "/etc/kuberntes",
        "kuberntes()",
        "user@kuberntes",
        "deplo",
        "kubernets",
        "ledgrs",
        "strongbx",
        "庭の土を耕す",
        "xqzw",
        "tnr",
        "<b>",
        "%",
    ],
)
def test_correct_quoted_excluded_and_unknown_words_and_codes_are_not_corrected(
    spelling_wiki: SpellingFixture, typed: str
) -> None:
    assert get_suggestion(spelling_wiki, typed) == ""


@pytest.mark.parametrize("mode", list(SearchMode))
def test_the_page_is_found_and_its_snippet_marks_the_corrected_word(
    spelling_wiki: SpellingFixture, mode: SearchMode
) -> None:
    handle = spelling_wiki.open_handle()
    answer = handle.search(SearchRequest("kuberntes replicas", mode=mode))
    handle.close()
    assert (answer.query, answer.did_you_mean) == ("kuberntes replicas", "kubernetes replicas")
    best = answer.hits[0]
    assert best.path == "Cluster"
    marked = {best.snippet.text[span.start : span.end].lower() for span in best.snippet.matches}
    assert "kubernetes" in marked


def test_the_answer_is_the_same_as_for_the_correct_word(spelling_wiki: SpellingFixture) -> None:
    handle = spelling_wiki.open_handle()
    for mode in SearchMode:
        typo, right = (
            handle.search(SearchRequest(query, mode=mode)) for query in ("descalle the kettle", "descale the kettle")
        )
        assert typo.did_you_mean == "descale the kettle"
        assert [(hit.path, hit.score) for hit in typo.hits] == [(hit.path, hit.score) for hit in right.hits]
    handle.close()


def test_phrases_and_exclusions_are_kept_as_they_were_typed(spelling_wiki: SpellingFixture) -> None:
    assert get_suggestion(spelling_wiki, '"rear flap" pritner -tonner') == '"rear flap" printer -tonner'


def test_a_word_only_on_filtered_pages_is_not_suggested(spelling_wiki: SpellingFixture) -> None:
    assert get_suggestion(spelling_wiki, "kuberntes", PageFilter(path_prefix="Cluster")) == "kubernetes"
    assert get_suggestion(spelling_wiki, "kuberntes", PageFilter(path_prefix="Kitchen")) == ""


def test_a_word_that_the_model_knows_is_not_corrected(spelling_wiki: SpellingFixture) -> None:
    try:
        spelling_wiki.embedder = VocabularyEmbedder("bootz")
        assert get_suggestion(spelling_wiki, "bootz") == ""
        spelling_wiki.embedder = VocabularyEmbedder()
        assert get_suggestion(spelling_wiki, "bootz") == "boots"
    finally:
        spelling_wiki.embedder = VocabularyEmbedder("boat")


@pytest.mark.parametrize(
    ("language", "typed", "wanted"),
    [
        ("english", "stock option vesting schedule", ""),
        ("english", "Vesting", ""),
        ("english", "colours", ""),
        ("english", "vettting", "vetting"),
        ("english", "vesttng", ""),
        ("english", "work places", "workplaces"),
        ("english+german", "vesting", ""),
        ("english+german", "wann ist das vesting", "wann ist das vetting"),
        ("german", "vesting", "vetting"),
    ],
)
def test_an_ordinary_english_word_is_not_replaced_by_another_one(
    tmp_path: Path, language: str, typed: str, wanted: str
) -> None:
    pages: dict[str, str | bytes | None] = {
        "People.md": "# People\n\nThe vetting of new people, and their workplaces. Coolours.\n",
        "Leute.md": "# Leute\n\nDas Vetting ist die Überprüfung der Leute, und wann das ist.\n",
    }
    wiki = SpellingFixture(tmp_path, pages, TextPipeline(language=language))
    assert get_suggestion(wiki, typed) == wanted


def test_the_list_of_english_words_has_ordinary_words_with_inflections_and_its_licence() -> None:
    assert all(map(is_english_word, ("vesting", "vested", "reimbursements", "colour", "color", "descale")))
    assert not any(
        map(is_english_word, ("kubernetes", "kuberntes", "vestin", "esting", "vesting\nvestry", "größe", ""))
    )
    licence = files("wikiholt.search").joinpath("english_words.LICENSE.txt").read_text()
    assert "Copyright 2000-2016 by Kevin Atkinson" in licence


def test_the_word_cache_corrects_as_the_index_alone_does(spelling_wiki: SpellingFixture, tmp_path: Path) -> None:
    handle = spelling_wiki.open_handle(lambda index, _: FileKeywordCache(index, tmp_path, background=False))
    assert handle.search(SearchRequest("kuberntes")).did_you_mean == "kubernetes"
    handle.close()


def test_without_a_lexicon_a_search_goes_on_as_typed(spelling_wiki: SpellingFixture) -> None:
    handle = spelling_wiki.open_handle(correct=False)
    answer = handle.search(SearchRequest("kuberntes cluster"))
    assert (answer.did_you_mean, answer.hits[0].path) == ("", "Cluster")
    handle.close()


def test_an_error_during_correction_fails_no_search(
    spelling_wiki: SpellingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> dict[str, float]:
        raise RuntimeError("broken")

    monkeypatch.setattr(spell_check, "find_near_terms", broken)
    assert get_suggestion(spelling_wiki, "kuberntes cluster") == ""


def test_while_the_keyword_cache_is_not_ready_typos_are_corrected_with_the_index(
    spelling_wiki: SpellingFixture, tmp_path: Path
) -> None:
    def closed(index: WikiIndex, _: str) -> FileKeywordCache:
        cache = FileKeywordCache(index, tmp_path, background=False)
        cache.close()
        return cache

    handle = spelling_wiki.open_handle(closed)
    answer = handle.search(SearchRequest("kuberntes cluster"))
    assert (answer.did_you_mean, answer.hits[0].path, answer.degraded) == ("kubernetes cluster", "Cluster", False)
    handle.close()


def test_an_error_while_finding_compounds_fails_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> tuple[str, ...]:
        raise IndexError("damaged")

    german = SpellingFixture(
        tmp_path,
        {"Kueche.md": "# Küche\n\nDie Kaffeemaschine wird montags entkalkt.\n"},
        TextPipeline(language="german"),
    )
    handle = german.open_handle()
    assert handle.search(SearchRequest("Maschine ", mode=SearchMode.KEYWORD)).hits[0].path == "Kueche"
    monkeypatch.setattr(search_query, "find_related_terms", broken)
    answer = handle.search(SearchRequest("Kaffeemaschine ", mode=SearchMode.KEYWORD))
    assert (answer.hits[0].path, answer.degraded) == ("Kueche", True)
    handle.close()


def test_a_suggestion_is_never_too_long_to_be_searched() -> None:
    typed = ("kuberntes cluster " * 200)[:2000].strip().ljust(2000, "x")
    assert len(spell_check.format_as_typed(typed, typed.replace("kuberntes", "kubernetes"))) == 2000


def test_words_of_deleted_pages_are_forgotten_and_those_of_new_pages_known(tmp_path: Path) -> None:
    spelling_wiki = SpellingFixture(
        tmp_path, {"a.md": "# Sundial\n\nThe sundial is wrong in summer.", "b.md": "# Pond\n\nFrogs."}
    )
    handle = spelling_wiki.open_handle()
    assert handle.search(SearchRequest("sundila")).did_you_mean == "sundial"
    spelling_wiki.repository.commit({"a.md": None, "c.md": "# Windmill\n\nThe windmill turns."})
    handle.sync()
    assert handle.search(SearchRequest("sundila")).did_you_mean == ""
    assert handle.search(SearchRequest("wndmill ")).did_you_mean == "windmill "
    handle.close()


def test_parts_of_identifiers_are_not_suggested(tmp_path: Path) -> None:
    identifiers = SpellingFixture(
        tmp_path,
        {
            "Radio.md": "# Radio\n\nThe station sends by LoRaWAN. GitLab has the firmware.",
            "coffee_grinder.md": "# Settings\n\nSet `max_connections` and `maxReplicas` to 3. Read the office-hours.",
        },
    )
    for typed in ("gitt", "wanr", "conections", "connectionss", "replicass"):
        assert get_suggestion(identifiers, typed) == "", typed
    for typed, wanted in (
        ("lorawna", "lorawan"),
        ("Gitlba", "GitLab"),
        ("ofice", "office"),
        ("grindr", "grinder"),
    ):
        assert get_suggestion(identifiers, typed) == wanted


def test_function_words_of_any_language_are_not_corrected(tmp_path: Path) -> None:
    pages = {"a.md": "# Network\n\nThe wan has a git server and two hosts.", "b.md": "# B\n\nText."}
    for language in ("english", "german"):
        wiki = SpellingFixture(tmp_path / language, pages, TextPipeline(language=language))
        for typed in ("wann ", "gibt ", "wann git"):
            assert get_suggestion(wiki, typed) == "", (language, typed)
        assert get_suggestion(wiki, "gitt ") == "git "


def test_a_query_in_a_language_that_the_wiki_does_not_have_is_not_corrected(tmp_path: Path) -> None:
    pages = {"a.md": "# Schreibtisch\n\nJede hat einen eigenen Schreibtisch.", "b.md": "# Table\n\nEverybody has one."}
    typed, corrected = "wer hat eine eigene Lampe", "wer hat eine eigenen Lampe"
    english = SpellingFixture(tmp_path / "english", pages)
    assert get_suggestion(english, typed) == ""
    assert get_suggestion(english, "eigene Lampe") == "eigenen Lampe"
    both = SpellingFixture(tmp_path / "both", pages, TextPipeline(language="english+german"))
    assert get_suggestion(both, typed.replace("eigene", "eignen")) == corrected


@pytest.mark.parametrize(
    ("language", "page", "typed", "wanted"),
    [
        ("english", "Dosimeters are worn on the chest.", "dosimetter lost", "dosimeters lost"),
        ("english", "Dosimeters are worn on the chest.", "dosimetr lost", "dosimeters lost"),
        ("english", "The dosimeter is worn on the chest.", "lost dosimetters ", "lost dosimeter "),
        ("french", "Les dosimètres sont dans le bureau.", "dosimettre perdu", "dosimètres perdu"),
        ("english", "Bookings are made here.", "cooking", ""),
        ("english", "Dosimeters are worn on the chest.", "dosimettrist lost", ""),
    ],
)
def test_a_typo_in_another_form_of_a_word_is_corrected(
    tmp_path: Path, language: str, page: str, typed: str, wanted: str
) -> None:
    wiki = SpellingFixture(tmp_path, {"a.md": page, "b.md": "# B\n\nText."}, TextPipeline(language=language))
    assert get_suggestion(wiki, typed) == wanted


def test_a_word_is_not_corrected_to_one_of_another_language_than_the_query(tmp_path: Path) -> None:
    pages = {
        "a.md": "# Déchets\n\nLe registre des déchets est dans le bureau. Il est avec les plans de la commune.",
        "b.md": "# Garden\n\nThe garden is open to all of us, and the hedge is cut in May. This is on the list.",
        "c.md": "# Abfall\n\nDas Register der Abfälle ist in dem Büro und wird von der Gemeinde geprüft.",
    }
    wiki = SpellingFixture(tmp_path, pages, TextPipeline(language="english+german+french"))
    query = "Combien de temps garder le registre des déchets"
    assert get_suggestion(wiki, query) == ""
    assert get_suggestion(wiki, query.replace("registre", "registrre")) == query
    assert get_suggestion(wiki, "gardem key") == "garden key", "a query without a language"


def test_a_bare_stem_is_never_suggested(tmp_path: Path) -> None:
    spelling_wiki = SpellingFixture(
        tmp_path, {"a.md": "# Universities\n\nUniversities, universal and universally.", "b.md": "# B\n\nText."}
    )
    for typed in ("univxers", "uinvers", "universitis "):
        found = get_suggestion(spelling_wiki, typed).strip()
        assert found in {"", "universities", "universal", "universally"}


def test_many_threads_get_the_same_correction(spelling_wiki: SpellingFixture) -> None:
    handle = spelling_wiki.open_handle()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(handle.search(SearchRequest("kuberntes")).did_you_mean))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    handle.close()
    assert found == ["kubernetes"] * 8


def test_only_words_of_the_wiki_itself_are_suggested(spelling_wiki: SpellingFixture, tmp_path: Path) -> None:
    other = SpellingFixture(
        tmp_path, {"a.md": "# Observatory\n\nThe observatory has a telescope.", "b.md": "# B\n\nMore."}
    )
    assert get_suggestion(other, "observatroy") == "observatory"
    assert get_suggestion(spelling_wiki, "observatroy") == ""


def test_of_equally_likely_words_every_process_chooses_the_same(tmp_path: Path) -> None:
    # The order of a set of words differs between processes: without a rule, all six would rarely be the first.
    pairs = [("balck", "balack", "balick"), ("dorr", "dobrr", "dozrr"), ("garmen", "garamen", "garmien")]
    pairs += [("lintex", "liantex", "linutex"), ("mortax", "moratax", "mortiax"), ("pivod", "pinvod", "pivood")]
    pages: dict[str, str | bytes | None] = {"Words.md": " ".join(f"{one} {other}" for _, one, other in pairs)}
    wiki = SpellingFixture(tmp_path, pages)
    assert [get_suggestion(wiki, typed) for typed, *_ in pairs] == [min(words) for _, *words in pairs]
