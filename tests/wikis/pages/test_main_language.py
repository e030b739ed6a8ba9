"""The languages of pages: what is stored, counted and filtered, and what `status` says about them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import InvalidQuery
from wikiholt.index.pipeline import TextPipeline
from wikiholt.interfaces.cli.output import TerminalStyle, format_status
from wikiholt.search.request import SearchRequest
from wikiholt.text.languages import detect_wiki_languages, find_main_language, find_text_language
from wikiholt.wikis.status import WikiStatus

GERMAN = "Die Pumpe ist nicht mit dem Tank verbunden, und das Wasser wird von der Leitung in die Zisterne geführt."
ENGLISH = "The pump is not connected with the tank, and the water is led from the pipe into the cistern."
FRENCH = "La pompe n'est pas reliée au réservoir, et l'eau est conduite par la conduite dans la citerne pour les."
JAPANESE = "ポンプはタンクに接続されていません。"
DETECT = TextPipeline(detects_languages=True)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (GERMAN, "german"),
        (f"```\n{ENGLISH * 9}\n```\n{GERMAN}", "german"),
        (JAPANESE, "japanese"),
        ("水泵没有连接到水箱。", "chinese"),
        ("펌프가 탱크에 연결되어 있지 않습니다.", "korean"),
        ("ปั๊มไม่ได้เชื่อมต่อกับถัง", "thai"),
        ("पंप टैंक से जुड़ा नहीं है।", "hindi"),
        ("Máy bơm không được nối với bể chứa, và nước chảy từ đường ống.", "vietnamese"),
        ("Насос не з'єднаний з баком, і вода тече з труби в цистерну.", "ukrainian"),
        ("پمپ به مخزن وصل نیست و آب از لوله به حوض می‌رود.", "persian"),
        ("المضخة غير متصلة بالخزان، والماء من الأنبوب إلى الحوض في كل يوم.", "arabic"),
        ("המשאבה אינה מחוברת למיכל.", "hebrew"),
        ("int main() { return 0; }", ""),
        ("", ""),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert find_text_language(text) == language


def test_the_main_language_is_that_of_more_than_half_of_the_pages() -> None:
    assert find_main_language({"german": 2, "english": 1}) == "german"
    assert find_main_language({"german": 1, "english": 1}) == ""
    assert find_main_language({}) == ""


@pytest.mark.parametrize(
    ("texts", "previous", "languages"),
    [
        ([ENGLISH] * 9, "english", "english"),
        ([ENGLISH] * 99 + [GERMAN] * 4, "english", "english"),
        ([ENGLISH] * 99 + [GERMAN] * 6, "english", "english+german"),
        # What is used stays: an edit does not build the index again.
        ([ENGLISH] * 99 + [GERMAN] * 4, "english+german", "english+german"),
        ([ENGLISH] * 99 + [GERMAN] * 2, "english+german", "english"),
        ([GERMAN] * 9, "english", "german"),
        ([GERMAN] * 9 + [ENGLISH] * 5, "english", "english+german"),
        ([GERMAN] * 9 + [ENGLISH] * 4, "english", "german+english"),
        ([FRENCH, "---\ntitle: x\nlang: de\n---\nTank"], "english", "french+german"),
        ([JAPANESE] * 9, "english", "english"),
        ([JAPANESE] * 9 + [GERMAN], "english", "english+german"),
        (["x = 1"], "german+french", "german+french"),
        ([], "english", "english"),
    ],
)
def test_the_languages_of_a_wiki(texts: list[str], previous: str, languages: str) -> None:
    assert detect_wiki_languages(texts, previous) == languages


def test_pages_are_stemmed_counted_and_filtered_in_their_own_language(tmp_path: Path) -> None:
    pages: dict[str, str | bytes | None] = {f"seite{n}.md": f"# Seite {n}\n\n{GERMAN}\n" for n in range(6)}
    pages |= {"en.md": ENGLISH, "ja.md": JAPANESE, "said.md": "---\nlang: fr-CA\n---\nTank", "hidden.md": HIDDEN}
    wiki = IndexedWiki(tmp_path, pages, pipeline=DETECT).sync()

    def find(query: str, where: PageFilter = PageFilter()) -> set[str]:  # noqa: B008 - a frozen value
        return {hit.file for hit in wiki.handle.search(SearchRequest(query, 20, SearchMode.KEYWORD, where)).hits}

    german = {f"seite{n}.md" for n in range(6)}
    assert wiki.handle.get_status().languages == {"german": 6, "english": 1, "french": 1, "japanese": 1}
    assert wiki.handle.get_status().query_languages == ("german", "english", "french")
    assert find("Leitungen ") == german
    assert find("pipes ") == {"en.md"}
    assert find("Tank ") == german | {"en.md", "said.md"}
    assert find("Tank ", PageFilter(languages=("french", "english"))) == {"en.md", "said.md"}
    assert find("Tank lang:de") == german
    assert find("Tank -lang:de") == {"en.md", "said.md"}
    assert find("Tank lang:fr OR lang:English") == {"en.md", "said.md"}
    with pytest.raises(InvalidQuery, match="'klingon' is not a known language"):
        find("Tank lang:klingon")
    wiki.close()


HIDDEN = f"---\nhidden: true\n---\n{FRENCH}"


def test_new_pages_in_another_language_change_how_the_wiki_is_read(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, {"a.md": ENGLISH, "b.md": ENGLISH}, pipeline=DETECT)
    generation = _get_state(wiki.sync().handle.get_status()).generation
    assert wiki.handle.get_status().query_languages == ("english",)
    wiki.repository.commit({"c.md": ENGLISH})
    assert _get_state(wiki.sync().handle.get_status()).generation == generation
    wiki.repository.commit({"d.md": GERMAN})
    assert wiki.sync().handle.get_status().query_languages == ("english", "german")
    request = SearchRequest("Leitungen ", 20, SearchMode.KEYWORD)
    assert [hit.file for hit in wiki.handle.search(request).hits] == ["d.md"]
    wiki.close()


def _get_state(status: WikiStatus):
    assert status.state is not None
    return status.state


def test_status_proposes_what_helps_in_the_main_language(tmp_path: Path) -> None:
    pages: dict[str, str | bytes | None] = {f"seite{n}.md": f"# Seite {n}\n\n{GERMAN}\n" for n in range(3)}
    wiki = IndexedWiki(tmp_path, {**pages, "a.md": ENGLISH}).sync()
    status = wiki.handle.get_status()
    wiki.close()
    state = _get_state(status)

    def format_lines(model: str, *languages: str) -> str:
        recipe = replace(state.recipe, model=model)
        seen = replace(status, state=replace(state, recipe=recipe), query_languages=languages)
        return "\n".join(format_status(seen, TerminalStyle(False)))

    english, german = format_lines("wikiholt-1", "english"), format_lines("wikiholt-1", "german")
    assert "languages: 3 German, 1 English" in english
    assert "most pages are in German; words are stemmed as in English, and the model wikiholt-1 finds" in english
    assert 'hint: `wikiholt set notes language=german`, and `model = "multilingual-e5-small"`' in english
    assert "most pages are in German; the model wikiholt-1 finds by meaning in English only" in german
    assert 'hint: `model = "multilingual-e5-small"`' in german
    assert "hint: `wikiholt set notes language=german`\n" in format_lines("multilingual-e5-small", "english") + "\n"
    assert "most pages" not in format_lines("multilingual-e5-small", "german")
