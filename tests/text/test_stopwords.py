"""Stopwords of every language with a list are left out of queries, unless the query has nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.analysis import normalize_term
from wikiholt.text.keyword_query import build_query_variants, get_significant_terms, parse_query
from wikiholt.text.languages import get_stopword_text, get_stopwords

QUERIES = {
    "german": ("wie setze ich das Passwort für den Drucker zurück", {"setz", "passwort", "druck", "zuruck"}),
    "french": ("comment changer le mot de passe de l'imprimante", {"chang", "mot", "pass", "imprim"}),
    "spanish": ("cómo se cambia la contraseña de la impresora", {"cambi", "contrasen", "impresor"}),
    "italian": ("come si cambia la password della stampante", {"camb", "password", "stampant"}),
    "portuguese": ("como mudar a senha da impressora", {"mud", "senh", "impressor"}),
    "dutch": ("hoe verander ik het wachtwoord van de printer", {"verander", "wachtwoord", "printer"}),
    "swedish": ("hur ändrar jag lösenordet för skrivaren", {"andr", "losenordet", "skriv"}),
    "danish": ("hvordan ændrer jeg koden til printeren", {"aendr", "kod", "print"}),
    "norwegian": ("hvordan endrer jeg passordet til skriveren", {"endr", "passord", "skriver"}),
    "finnish": ("miten vaihdan tulostimen salasanan jos se on vanha", {"vaihd", "tulostim", "salasan", "vanh"}),
    "russian": ("как сменить пароль для принтера", {"смен", "парол", "принтер"}),
    "polish": ("jak zmienić hasło do drukarki", {"zmien", "hasl", "drukark"}),
}


@pytest.mark.parametrize("language", QUERIES)
def test_stopwords_of_a_question_are_not_searched(language: str) -> None:
    text, terms = QUERIES[language]
    assert set(parse_query(text, language).terms) == terms


@pytest.mark.parametrize("language", QUERIES)
def test_a_query_of_stopwords_alone_keeps_them(language: str) -> None:
    text = " ".join(get_stopword_text(language).split()[:4])
    assert parse_query(text, language).terms
    assert get_significant_terms(text, language)


def test_english_stopwords_are_unchanged() -> None:
    assert len(get_stopwords("english")) == 65
    assert parse_query("how to do it with the printer", "english").terms == ("printer",)
    assert [each.query for each in build_query_variants("how to do it", "english")] == [parse_query("how to do it")]


def test_a_language_without_a_list_leaves_nothing_out() -> None:
    assert get_stopwords("klingon") == frozenset()
    assert parse_query("the tlhIngan", "klingon").terms == ("the", "tlh", "ingan", "tlhingan")


def test_stopwords_of_another_language_count_only_in_a_query_with_two() -> None:
    both = "english+german"
    assert parse_query("wo ist die Kasse", both).terms == ("kass",)
    assert parse_query("die casting", both).terms == ("die", "cast")
    assert parse_query("recycle bin", both).terms == ("recycl", "bin")


def test_stopwords_are_stored_folded() -> None:
    assert all(word == normalize_term(word) for language in QUERIES for word in get_stopwords(language))


@given(st.text(max_size=60), st.sampled_from(["english", "german", "english+german+turkish", "arabic+tamil"]))
def test_any_text_can_be_read_in_any_languages(text: str, language: str) -> None:
    ways = build_query_variants(text, language)
    assert 1 <= len(ways) <= 8
    own = parse_query(text, language)
    assert (ways[0].query.terms, ways[0].query.phrases, ways[0].query.prefix) == (own.terms, own.phrases, own.prefix)
    assert set(own.excluded) <= set(ways[0].query.excluded)
