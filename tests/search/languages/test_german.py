"""German: compounds both ways, umlauts however they are typed, sharp s, small words."""

import pytest

from tests.search.languages.language_fixtures import LanguageFixture

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


def test_a_word_finds_the_compounds_that_end_with_it_after_the_word_itself(shelf: LanguageFixture) -> None:
    assert set(shelf.find_paths("Maschine ")) == {"Werkstatt", "Automat", "Küche"}
    assert shelf.find_paths("Maschine ")[-1] == "Küche"
    assert shelf.find_paths("Maschinen ")[-1] == "Küche"
    assert shelf.find_paths("Recht ")[0] == "Rechte"


def test_a_compound_finds_pages_with_its_parts(shelf: LanguageFixture) -> None:
    found = shelf.find_paths("Kaffeemaschinen ")
    assert found[:2] == ["Küche", "Automat"]
    assert set(found) == {"Küche", "Automat", "Werkstatt", "Einkauf"}


def test_what_only_ends_like_a_word_is_none_of_its_compounds(shelf: LanguageFixture) -> None:
    (page,) = shelf.search("Leitung ")
    assert page.path == "Leitung"
    assert shelf.get_marked_words("Leitung ", "Leitung") == []


def test_what_is_quoted_or_excluded_has_no_kin(shelf: LanguageFixture) -> None:
    assert set(shelf.find_paths('"Maschine"')) == {"Werkstatt", "Automat"}
    assert set(shelf.find_paths("Kaffee -Maschine ")) == {"Einkauf"}


@pytest.mark.parametrize("typed", ["Gebühr", "Gebuehr", "gebühren", "GEBÜHR", "Gebuhr", "gebu\u0308hr"])
def test_umlauts_may_be_typed_in_any_way(shelf: LanguageFixture, typed: str) -> None:
    assert set(shelf.find_paths(f"{typed} ")) == {"Büro", "Alt"}


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
def test_sharp_s_and_umlauts_meet_their_spellings(shelf: LanguageFixture, typed: str, page: str) -> None:
    assert page in shelf.find_paths(f"{typed} ")


def test_small_words_find_nothing_beside_others(shelf: LanguageFixture) -> None:
    assert shelf.find_paths("was kostet die Gebühr für den Parkplatz ")[0] == "Büro"
    assert "Leitung" not in shelf.find_paths("wie wird die Maschine von der IT gereinigt ")


def test_compounds_and_parts_are_marked(shelf: LanguageFixture) -> None:
    assert shelf.get_marked_words("Maschine ", "Küche") == ["Kaffeemaschine"]
    assert shelf.get_marked_words("Kaffeemaschine ", "Automat") == ["Maschine", "Kaffee"]
    assert shelf.get_marked_words("Gebuehr ", "Büro") == ["Gebühr"]


def test_the_beginning_of_a_word_finds_it_while_it_is_typed(shelf: LanguageFixture) -> None:
    assert shelf.find_paths("Parkpl") == ["Büro"]
    assert shelf.find_paths("zugriffsre") == ["Rechte"]
