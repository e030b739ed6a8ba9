"""Compounds, with the terms of a small wiki as the dictionary."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.analysis import get_analyser
from wikiholt.text.compounds import COMPOUNDING_LANGUAGES, RelatedTerms, find_related_terms, has_compounds

TEXTS = {
    "german": "Kaffee Maschinen Kaffeemaschine Espressomaschine Nähmaschine Zugriff Rechte Zugriffsrechte Reinigung "
    "Wohnung Wohnungsschlüssel Schlüssel Unterstellung Stellung Ordnung Verordnung Kind Kindergarten Garten",
    "dutch": "koffie apparaat koffieapparaat sleutel voordeursleutel voordeur wachtwoord beleid wachtwoordbeleid",
    "swedish": "kaffe maskin kaffemaskin lösenord lösenordsbyte byte",
    "danish": "adgang kode adgangskode bruger brugerkode",
    "norwegian": "nøkkel skap nøkkelskap passord passordbytte",
    "finnish": "verkko palvelin verkkopalvelin salasana",
    "hungarian": "jelszó csere jelszócsere felhasználó",
}


class FakeLexicon:
    """The terms of a text as a lexicon."""

    def __init__(self, language: str) -> None:
        self._page_counts = get_analyser(language).to_field_text(TEXTS.get(language, "")).split()

    def count_pages(self, term: str) -> int:
        return self._page_counts.count(term)

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        held = sorted(term for term in set(self._page_counts) if term.startswith(prefix))
        return [term for term in held if lengths is None or len(term) in lengths][:limit]

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        held = [term for term in dict.fromkeys(self._page_counts) if term.endswith(suffix)]
        return [term for term in held if lengths is None or len(term) in lengths][:limit]


def get_related_terms(word: str, language: str) -> set[str]:
    return set(find_related_terms([word], language, FakeLexicon(language)).close)


@pytest.mark.parametrize(
    ("language", "word", "found"),
    [
        ("german", "Maschine", {"kaffeemaschin", "espressomaschin"}),
        ("german", "Kaffeemaschine", {"kaffe", "maschin"}),
        ("german", "Kaffeemaschinenreinigung", {"kaffeemaschin", "reinig"}),
        ("german", "Recht", {"zugriffsrecht"}),
        ("german", "Zugriffsrechten", {"zugriff", "recht"}),
        ("german", "Schlüssel", {"wohnungsschlussel"}),
        ("german", "Wohnungsschlüssel", {"wohnung", "schlussel"}),
        ("german", "Kindergarten", {"kind", "gart"}),
        ("german", "Stellung", set()),
        ("german", "Ordnung", set()),
        ("german", "Espresso", set()),
        ("dutch", "apparaat", {"koffieapparaat"}),
        ("dutch", "wachtwoordbeleid", {"wachtwoord", "beleid"}),
        ("swedish", "maskin", {"kaffemaskin"}),
        ("swedish", "lösenordsbyte", {"losenord", "byt"}),
        ("danish", "adgangskode", {"adgang", "kod"}),
        ("norwegian", "nøkkelskap", {"nokkel", "skap"}),
        ("finnish", "verkkopalvelin", {"verko", "palvel"}),
        ("hungarian", "jelszócsere", {"jelsz", "cse"}),
    ],
)
def test_related_terms_of_a_word(language: str, word: str, found: set[str]) -> None:
    assert get_related_terms(word, language) == found


@pytest.mark.parametrize(
    ("language", "word", "found"),
    [
        ("german", "Kaffeefilter", {"kaffe"}),
        ("german", "Wohnungsgeber", {"wohnung"}),
        ("german", "Schlüsseldienst", {"schlussel"}),
        ("german", "Kaffeemaschine", {"kaffe", "maschin"}),
        ("german", "Kaffeemasch", set()),
        ("german", "Unterlagen", set()),
        ("german", "Kinder", set()),
        ("swedish", "maskinrum", set()),
        ("swedish", "maskinhall", {"maskin"}),
        ("english", "Kaffeefilter", set()),
    ],
)
def test_the_first_part_of_a_word_that_no_page_has(language: str, word: str, found: set[str]) -> None:
    assert set(find_related_terms([word], language, FakeLexicon(language), first_parts=True).close) == found
    if len(found) == 1:
        assert get_related_terms(word, language) == set()


@pytest.mark.parametrize(
    ("language", "word", "found"),
    [
        ("german", "Kaffee", {"kaffeemaschin"}),
        ("german", "Zugriff", {"zugriffsrecht"}),
        ("german", "Wohnungen", {"wohnungsschlussel"}),
        ("german", "Kind", {"kindergart"}),
        ("german", "Nähmaschine", set()),
        ("german", "Unter", set()),
        ("german", "Maschine", set()),
        ("dutch", "wachtwoord", {"wachtwoordbeleid"}),
        ("swedish", "kaffe", {"kaffemaskin"}),
        ("english", "Kaffee", set()),
    ],
)
def test_compounds_that_begin_with_a_word(language: str, word: str, found: set[str]) -> None:
    assert set(find_related_terms([word], language, FakeLexicon(language)).longer) == found


def test_languages_without_compounds_have_no_related_terms() -> None:
    assert not has_compounds("english")
    assert not has_compounds("english+french")
    assert has_compounds("english+german")
    assert find_related_terms(["Maschine"], "english+french", FakeLexicon("german")) == RelatedTerms()


@given(st.lists(st.text(max_size=80), max_size=3), st.sampled_from(sorted(COMPOUNDING_LANGUAGES)))
def test_any_word_has_a_bounded_number_of_related_terms(words: list[str], language: str) -> None:
    found = find_related_terms(words, language, FakeLexicon(language))
    assert max(map(len, found)) <= 64
    assert set(found.close).isdisjoint(found.longer)
    assert all(FakeLexicon(language).count_pages(term) for terms in found for term in terms)
