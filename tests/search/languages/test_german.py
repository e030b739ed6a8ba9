"""German: compounds in both directions, all spellings of umlauts, sharp s, stopwords."""

import pytest

from tests.search.languages.language_fixtures import LanguageFixture
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest

LANGUAGE = "german"
PAGES = {
    "Küche": "# Küche\n\nDie Kaffeemaschine steht neben der Spüle. Wer die letzte Tasse nimmt, setzt neue auf.",
    "Werkstatt": "# Werkstatt\n\nJede Maschine wird nach der Schicht gereinigt und abgeschaltet.",
    "Einkauf": "# Einkauf\n\nBohnen für den Kaffee bestellen wir beim Röster, zwei Kilo im Monat.",
    "Automat": "# Automat\n\nEine Maschine für Kaffee und Tee gibt es auch im zweiten Stock.",
    "Rechte": "# Verzeichnisse\n\nDie Zugriffsrechte auf Ordner vergibt die IT; der Zugriff wird protokolliert.",
    "Büro": "# Büro\n\nDie Gebühr für den Parkplatz an der Hauptstraße wird vom Gehalt abgezogen. "
    "Größere Autos zahlen mehr.",
    "Alt": "# Altes Protokoll\n\nDie Gebuehr wurde frueher bar bezahlt, in der Poststrasse.",
    "Leitung": "# Leitung\n\nDie Begleitung von Gästen ist Pflicht. Zur Anleitung gehört die Ableitung von Kosten.",
}


def test_a_word_finds_the_compounds_that_end_with_it_after_the_word_itself(language_wiki: LanguageFixture) -> None:
    assert set(language_wiki.find_paths("Maschine ")) == {"Werkstatt", "Automat", "Küche"}
    assert language_wiki.find_paths("Maschine ")[-1] == "Küche"
    assert language_wiki.find_paths("Maschinen ")[-1] == "Küche"
    assert language_wiki.find_paths("Recht ")[0] == "Rechte"


def test_a_word_finds_the_compounds_that_begin_with_it_last(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("Zugriff ") == ["Rechte"]
    found = language_wiki.find_paths("Kaffee ")
    assert set(found[:2]) == {"Einkauf", "Automat"}
    assert found[2:] == ["Küche"]
    assert language_wiki.find_paths("Kaffee Spüle ")[0] == "Küche"
    assert language_wiki.get_marked_words("Kaffee Spüle ", "Küche") == ["Kaffeemaschine", "Spüle"]


def test_a_compound_finds_pages_with_its_parts(language_wiki: LanguageFixture) -> None:
    found = language_wiki.find_paths("Kaffeemaschinen ")
    assert found[:2] == ["Küche", "Automat"]
    assert set(found) == {"Küche", "Automat", "Werkstatt", "Einkauf"}


def test_a_compound_that_no_page_has_finds_pages_with_its_first_part(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("Parkplatzschranke ") == ["Büro"]
    assert set(language_wiki.find_paths("Kaffeefilter bestellen ")) == {"Einkauf", "Automat"}
    assert language_wiki.find_paths("Kaffeefilter bestellen ")[0] == "Einkauf"
    assert language_wiki.find_paths('"Parkplatzschranke" ') == []


def test_a_known_first_part_does_not_prevent_the_correction_of_the_rest(language_wiki: LanguageFixture) -> None:
    answer = language_wiki.handle.search(SearchRequest("Kaffeemaschien ", 20, SearchMode.KEYWORD))
    assert (answer.did_you_mean, answer.hits[0].path) == ("Kaffeemaschine ", "Küche")


def test_a_word_with_the_same_ending_is_not_a_compound(language_wiki: LanguageFixture) -> None:
    (page,) = language_wiki.search("Leitung ")
    assert page.path == "Leitung"
    assert language_wiki.get_marked_words("Leitung ", "Leitung") == []


def test_quoted_and_excluded_words_have_no_related_terms(language_wiki: LanguageFixture) -> None:
    assert set(language_wiki.find_paths('"Maschine"')) == {"Werkstatt", "Automat"}
    assert language_wiki.find_paths("Kaffee -Maschine ") == ["Einkauf", "Küche"]
    assert set(language_wiki.find_paths('"Kaffee"')) == {"Einkauf", "Automat"}


@pytest.mark.parametrize("typed", ["Gebühr", "Gebuehr", "gebühren", "GEBÜHR", "Gebuhr", "gebu\u0308hr"])
def test_umlauts_may_be_typed_in_any_way(language_wiki: LanguageFixture, typed: str) -> None:
    assert set(language_wiki.find_paths(f"{typed} ")) == {"Büro", "Alt"}


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        ("Hauptstrasse", "Büro"),
        ("HAUPTSTRAẞE", "Büro"),
        ("Poststraße", "Alt"),
        ("groesser", "Büro"),
        ("Spuele", "Küche"),
    ],
)
def test_sharp_s_and_umlauts_match_their_spellings(language_wiki: LanguageFixture, typed: str, page: str) -> None:
    assert page in language_wiki.find_paths(f"{typed} ")


def test_stopwords_are_ignored_beside_other_words(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("was kostet die Gebühr für den Parkplatz ")[0] == "Büro"
    assert "Leitung" not in language_wiki.find_paths("wie wird die Maschine von der IT gereinigt ")


def test_compounds_and_parts_are_marked(language_wiki: LanguageFixture) -> None:
    assert language_wiki.get_marked_words("Maschine ", "Küche") == ["Kaffeemaschine"]
    assert language_wiki.get_marked_words("Kaffeemaschine ", "Automat") == ["Maschine", "Kaffee"]
    assert language_wiki.get_marked_words("Gebuehr ", "Büro") == ["Gebühr"]


def test_a_prefix_finds_the_word_while_it_is_typed(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("Parkpl") == ["Büro"]
    assert language_wiki.find_paths("zugriffsre") == ["Rechte"]
