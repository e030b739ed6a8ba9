"""The language of most pages, by a sample of them, and what `status` says about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki
from wikiholt.interfaces.cli.output import TerminalStyle, format_status
from wikiholt.text.languages import find_main_language

GERMAN = "Die Pumpe ist nicht mit dem Tank verbunden, und das Wasser wird von der Leitung in die Zisterne geführt."
ENGLISH = "The pump is not connected with the tank, and the water is led from the pipe into the cistern."
FRENCH = "La pompe n'est pas reliée au réservoir, et l'eau est conduite par la conduite dans la citerne pour les."


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        ([GERMAN, GERMAN, ENGLISH], "german"),
        ([ENGLISH, FRENCH, "x = 1"], ""),
        ([ENGLISH, ENGLISH, GERMAN], "english"),
        (["ポンプはタンクに接続されていません。"], "japanese"),
        (["水泵没有连接到水箱。"], "chinese"),
        (["펌프가 탱크에 연결되어 있지 않습니다."], "korean"),
        (["int main() { return 0; }"], ""),
        ([], ""),
    ],
)
def test_the_language_of_most_texts(texts: list[str], language: str) -> None:
    assert find_main_language(texts) == language


def test_status_names_the_main_language(tmp_path: Path) -> None:
    pages: dict[str, str | bytes | None] = {f"seite{n}.md": f"# Seite {n}\n\n{GERMAN}\n" for n in range(60)}
    wiki = IndexedWiki(tmp_path, {**pages, "a.md": ENGLISH}).sync()
    status = wiki.handle.get_status()
    wiki.close()
    assert status.main_language == "german"
    assert status.state is not None
    for model, is_proposed in (("wikiholt-1", True), ("multilingual-e5-small", False)):
        state = replace(status.state, recipe=replace(status.state.recipe, model=model))
        lines = "\n".join(format_status(replace(status, state=state), TerminalStyle(False)))
        assert ("most pages are in German" in lines) == is_proposed
        assert ("wikiholt set notes language=german" in lines) == is_proposed
