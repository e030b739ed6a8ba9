"""Pages of several languages in one wiki: each is stemmed in its own language, all are found by one query."""

from pathlib import Path

import pytest
import Stemmer

from tests.search.languages.language_fixtures import LanguageFixture
from wikiholt.domain.page import Page, PageMetadata
from wikiholt.domain.search import Confidence, SearchMode
from wikiholt.index.pipeline import TextPipeline
from wikiholt.testing import FakeEmbedder
from wikiholt.text.analysis import join_languages
from wikiholt.text.bm25 import detect_page_language, get_stemming_language
from wikiholt.text.language_names import LANGUAGES, find_language
from wikiholt.text.languages import find_text_language, is_text_in_other_language

LANGUAGE = "english+french+german"
PAGES = {
    "printers": "# Printers\n\nThe printers are on the second floor. If one of them is jammed, call the office.",
    "drucker": "# Drucker\n\nDie Drucker stehen im zweiten Stock. Wenn einer von ihnen klemmt, ruft bitte das Büro an.",
    "häuser": "---\nlang: de-DE\n---\n# Häuser\n\nMietverträge: drei Häuser, sieben Wohnungen.",
    "contrats": "# Contrats\n\nLes contrats généraux sont dans l'armoire, avec les clés du bâtiment et les baux.",
    "contratos": "---\nlanguage: spanish\n---\n# Contratos\n\nContratos y facturas.",
    "code": "# Snippets\n\n```\nif this is not in the list of them then return that which was\n```\n\nWir haben das "
    "von der alten Seite, und es ist nicht mehr zu ändern.",
}


@pytest.mark.parametrize("mode", [SearchMode.KEYWORD, SearchMode.HYBRID])
def test_a_word_finds_its_forms_in_every_language_of_the_wiki(language_wiki: LanguageFixture, mode: SearchMode) -> None:
    assert language_wiki.find_paths("printer", mode)[0] == "printers"
    assert language_wiki.find_paths("Haus", mode)[0] == "häuser"
    assert "häuser" in language_wiki.find_paths("Wohnung ", mode)[:2]
    assert language_wiki.find_paths("contrat général", mode)[0] == "contrats"
    assert language_wiki.find_paths("clé", mode)[0] == "contrats"


def test_snippets_mark_words_in_the_language_of_the_page(language_wiki: LanguageFixture) -> None:
    assert language_wiki.get_marked_words("Haus Wohnung ", "häuser") == ["Häuser", "Wohnungen"]
    assert language_wiki.get_marked_words("général ", "contrats") == ["généraux"]


def test_a_page_is_named_by_a_query_in_its_own_language(language_wiki: LanguageFixture) -> None:
    (best, *_) = language_wiki.search("Haus ")
    (other, *_) = language_wiki.search("printer ")
    assert (best.path, best.confidence) == ("häuser", Confidence.HIGH)
    assert (other.path, other.confidence) == ("printers", Confidence.HIGH)


def test_the_beginning_of_a_word_finds_it_in_any_language(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("Wohnun") == ["häuser"]
    assert language_wiki.find_paths("armoi") == ["contrats"]


def test_stopwords_of_a_further_language_are_left_out_of_a_query_in_it(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("wo sind die Drucker im Büro ")[0] == "drucker"
    assert "contrats" in language_wiki.find_paths("où sont les clés du bâtiment ")[:1]
    assert "printers" not in language_wiki.find_paths("die Wohnung ")


def test_a_page_in_an_unconfigured_language_is_found_by_its_exact_words(language_wiki: LanguageFixture) -> None:
    assert language_wiki.find_paths("Contratos ")[0] == "contratos"
    assert language_wiki.find_paths("facturas")[0] == "contratos"


def make_page(body: str, language: str | None = None) -> Page:
    return Page("p.md", "p", "p", PageMetadata(language=language), (), (), body, 1)


def get_stemming(page: Page, language: str) -> str:
    return get_stemming_language(detect_page_language(page, language), language)


def test_code_is_ignored_in_language_detection() -> None:
    assert detect_page_language(make_page(PAGES["code"]), LANGUAGE) == "german"


@pytest.mark.parametrize(
    ("said", "language"),
    [
        *(
            ("de", "german"),
            ("de-AT", "german"),
            ("DE_de.UTF-8", "german"),
            ("German", "german"),
            ("Deutsch", "german"),
        ),
        *(
            ("fra", "french"),
            ("français (France)", "french"),
            ("en-GB", "english"),
            ("es", "english"),
            ("ja", "english"),
        ),
    ],
)
def test_the_language_in_the_frontmatter_is_used(said: str, language: str) -> None:
    text = "Das ist auf jeden Fall ein Satz, der nicht in einer anderen Sprache ist."
    assert get_stemming(make_page(text, said), LANGUAGE) == language
    assert get_stemming(make_page(text, said), "english") == "english"


def test_the_language_of_a_page_is_kept_also_if_queries_are_not_read_in_it() -> None:
    assert detect_page_language(make_page("x", "ja"), LANGUAGE) == "japanese"
    assert detect_page_language(make_page(SENTENCES["russian"]), LANGUAGE) == "russian"
    assert detect_page_language(make_page("x"), LANGUAGE) == "english"


@pytest.mark.parametrize("said", ["markdown", "", "  ", "0", "xx-YY", None])
def test_an_unknown_language_in_the_frontmatter_is_ignored(said: str | None) -> None:
    text = "Das ist auf jeden Fall ein Satz, der nicht in einer anderen Sprache ist."
    assert detect_page_language(make_page(text, said), LANGUAGE) == "german"
    assert detect_page_language(make_page(text, said), "english") == "german"
    assert get_stemming(make_page(text, said), "english") == "english"


SENTENCES = {
    "english": "The backup is made at night, and nobody has to be there when it is. It will be on the other disk.",
    "german": "Die Sicherung läuft in der Nacht, und niemand muss dabei sein. Sie liegt dann auf der anderen Platte.",
    "french": "La sauvegarde est faite dans la nuit et personne ne doit être là. Elle se trouve sur le second disque.",
    "spanish": "La copia se hace por la noche y nadie tiene que estar en la oficina. Después está en el otro disco.",
    "italian": "La copia viene fatta di notte e nessuno deve essere in ufficio. Poi si trova sul secondo "
    "disco della sala.",
    "portuguese": "A cópia é feita à noite e ninguém tem de estar no escritório. Depois ela fica no outro "
    "disco da sala.",
    "dutch": "De kopie wordt in de nacht gemaakt en niemand hoeft er bij te zijn. Daarna staat het op "
    "de andere schijf.",
    "swedish": "Kopian görs på natten och ingen måste vara på kontoret när det sker. Sedan finns den på "
    "den andra disken.",
    "finnish": "Kopio tehdään yöllä, eikä kenenkään tarvitse olla paikalla. Sen jälkeen se on myös "
    "toisella levyllä, jos kaikki on hyvin.",
    "hungarian": "A mentés éjjel készül, és nem kell hogy valaki itt legyen. Ez után a másik lemezen van, "
    "ha minden jó.",
    "russian": "Копия делается ночью, и никто не должен быть в офисе. После этого она есть и на втором "
    "диске, если всё хорошо.",
    "polish": "Kopia jest robiona w nocy i nikt nie musi być w biurze. Po tym jest ona także na drugim "
    "dysku, który się obraca.",
    "czech": "Záloha se dělá v noci a nikdo nemusí být v kanceláři. Potom je také na druhém disku, "
    "který je v jiné budově.",
    "romanian": "Copia se face în timpul nopții și nu este nevoie să fie cineva la birou. După aceea este "
    "și pe al doilea disc.",
    "turkish": "Yedek gece alınır ve o sırada ofiste kimse olmaz. Daha sonra bu kopya diğer disk için de var.",
    "greek": "Το αντίγραφο γίνεται τη νύχτα και δεν χρειάζεται να είναι κανείς στο γραφείο. Μετά είναι "
    "και στον άλλο δίσκο.",
    "arabic": "يتم النسخ في الليل ولا يجب أن يكون أحد في المكتب. بعد ذلك يكون على القرص الآخر مع كل ما هو جديد.",
    "indonesian": "Salinan dibuat pada malam hari dan tidak ada yang harus di kantor. Setelah itu salinan "
    "ini ada di cakram yang lain.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_stopwords_of_two_sentences_identify_the_language(language: str) -> None:
    assert find_text_language(SENTENCES[language]) == language
    assert not is_text_in_other_language(SENTENCES[language], language)


def test_a_german_page_is_in_another_language_of_an_english_wiki() -> None:
    assert is_text_in_other_language(SENTENCES["german"], "english")


@pytest.mark.parametrize(
    "text", ["", "Kubernetes", "Der Server", "RAID 5, 4 × 2 TB, SAS", "東京のオフィスは二階です。"]
)
def test_a_page_with_too_few_words_is_in_the_wikis_own_language(text: str) -> None:
    assert not is_text_in_other_language(text, "english")


def test_an_ambiguous_page_is_in_the_wikis_own_language() -> None:
    text = "Det er en kopi som ikke skal være på den andre disken, men den kan være i skapet."
    assert not is_text_in_other_language(text, "norwegian")


def test_every_language_has_a_code_and_a_stemmer() -> None:
    assert set(LANGUAGES) <= set(Stemmer.algorithms())
    assert all(find_language(language.upper()) == language for language in LANGUAGES)


def test_the_recipe_depends_on_the_languages_and_not_on_their_order() -> None:
    one = TextPipeline(language=join_languages("english", ["german", "french", "english", "german"]))
    other = TextPipeline(language=join_languages("english", ["french", "german"]))
    alone = TextPipeline(language=join_languages("english", []))
    recipes = [pipeline.build_recipe(FakeEmbedder()) for pipeline in (one, other, alone)]
    assert recipes[0] == recipes[1] != recipes[2]
    assert [TextPipeline.from_recipe(recipe) for recipe in recipes] == [one, other, alone]
    assert alone == TextPipeline()


def test_a_wiki_without_further_languages_ignores_the_language_in_frontmatter(tmp_path: Path) -> None:
    language_wiki = LanguageFixture(tmp_path, {"häuser": PAGES["häuser"]}, "english")
    try:
        assert language_wiki.find_paths("Häuser ") == ["häuser"]
        assert language_wiki.find_paths("Haus ") == []
    finally:
        language_wiki.handle.close()
