"""`wikiholt check` with the real model: a question in other words than its page."""

from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main

QUESTIONS = """# Questions

| Question | Page | Sentence |
|---|---|---|
| When is it allowed to burn garden waste? | [Fires](rules/fires.md) | Bonfires are permitted from 1 October. |
"""
FILLER = {
    f"notes/{name}.md": f"# {name}\n\nThe {name} meets on Tuesday in the hall, and everybody brings a chair.\n"
    for name in ("choir", "chess", "drama", "books", "cards", "dance")
}


def test_a_question_that_is_answered_and_then_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiki = Repository(tmp_path / "wiki")
    fires = "# Fires\n\nBonfires are permitted from 1 October. Put out the embers before you leave.\n"
    links = "\n".join(f"[{name}]({name})" for name in ("rules/fires.md", *FILLER))
    wiki.commit({**FILLER, "rules/fires.md": fires, "Home.md": f"# Home\n\n{links}\n", "questions.md": QUESTIONS})
    command = ["--data", str(tmp_path / "data"), "check", str(wiki.path)]
    assert main(command) == 0
    burning = {
        "burn/allowed.md": "# Burning garden waste\n\nIt is allowed to burn garden waste on Sundays in autumn.\n",
        "burn/neighbours.md": "# Smoke\n\nAsk the neighbours before you burn garden waste, even when it is allowed.\n",
        "burn/leaves.md": "# Leaves\n\nWhen leaves are wet, it is not allowed to burn them with other garden waste.\n",
        "burn/fines.md": "# Fines\n\nTo burn garden waste when it is not allowed costs a fine.\n",
    }
    wiki.commit({**burning, "rules/fires.md": "# Hall\n\nThe group meets on Monday, and everybody brings a table.\n"})
    capsys.readouterr()
    assert main([*command, "--base", "HEAD~1"]) == 10
    out = capsys.readouterr().out
    assert "questions.md:5: error: 'When is it allowed to burn garden waste?' does not find rules/fires among" in out
    assert "among the first three hits any more" in out
    assert "questions.md:5: error: rules/fires does not contain the sentence 'Bonfires are permitted" in out
