"""Compounds, with the terms of a small wiki as the dictionary."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.analysis import analyser
from wikiholt.text.compounds import COMPOUNDING, kindred, makes_compounds

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


class Terms:
    """The terms of a text as a lexicon."""

    def __init__(self, language: str) -> None:
        self._held = analyser(language).field(TEXTS.get(language, ""))

    def pages(self, term: str) -> int:
        return self._held.count(term)

    def beginning_with(self, beginning: str, most: int, lengths: range | None = None) -> Sequence[str]:
        return [term for term in dict.fromkeys(self._held) if term.startswith(beginning)][:most]

    def ending_with(self, ending: str, most: int, lengths: range | None = None) -> Sequence[str]:
        held = [term for term in dict.fromkeys(self._held) if term.endswith(ending)]
        return [term for term in held if lengths is None or len(term) in lengths][:most]


def kin(word: str, language: str) -> set[str]:
    return set(kindred([word], language, Terms(language)))


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
def test_kin_of_a_word(language: str, word: str, found: set[str]) -> None:
    assert kin(word, language) == found


def test_languages_that_write_words_apart_have_none() -> None:
    assert not makes_compounds("english")
    assert not makes_compounds("english+french")
    assert makes_compounds("english+german")
    assert kindred(["Maschine"], "english+french", Terms("german")) == ()


@given(st.lists(st.text(max_size=80), max_size=3), st.sampled_from(sorted(COMPOUNDING)))
def test_any_word_has_a_bounded_number_of_kin(words: list[str], language: str) -> None:
    found = kindred(words, language, Terms(language))
    assert len(found) <= 64
    assert all(Terms(language).pages(term) for term in found)
