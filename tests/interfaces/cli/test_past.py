"""`search --at`, `ask --at` and `past` on the command line."""

import json

from tests.interfaces.cli.cli_fixtures import CommandRunner
from tests.support.git_repository import Repository


def test_the_past_is_searched_listed_and_deleted(run: CommandRunner, garden: Repository) -> None:
    first = garden.get_head()
    garden.run_git("tag", "v1.0")
    garden.commit({"Home.md": None, "Pond.md": "# Pond\n\nIt is empty.\n"}, "The heron left\n\nfor good")
    code, output, _ = run("search", "-w", "garden", "heron", "--at", "v1.0")
    assert code == 0
    assert f"The wiki at v1.0 (commit {first[:10]} of 2023-11-14):" in output
    assert f"{first[:10]}:Home.md:3" in output
    assert "removed 2023-11-14 by Ada in" in output
    assert "The heron left\n" in output
    assert run("search", "-w", "garden", "heron", "--files")[1] != "Home.md\n"
    document = json.loads(run("search", "-w", "garden", "heron", "--at", first[:8], "--json")[1])
    assert (document["at"]["revision"], document["results"][0]["now"]["path"]) == (first, None)
    assert "heron" in run("ask", "-w", "garden", "where is the heron", "--at", "v1.0")[1]
    (view,) = json.loads(run("past", "garden", "--json")[1])["views"]
    assert (view["wiki"], view["revision"], view["complete"], view["pages"]) == ("garden", first, True, 1)
    assert first[:10] in run("past")[1]
    assert run("past", "garden", "--delete", "v1.0")[0] == 3
    assert "No past commit" in run("past", "garden", "--delete", first[:7])[1]
    garden.run_git("branch", "dry", "HEAD")
    assert run("search", "-w", "garden", "empty", "--at", "dry", "--no-wait")[0] == 0
    code, _, errors = run("search", "-w", "garden", "heron", "--at", "v1.1")
    assert code == 3
    assert "v1.0" in errors
    code, _, errors = run("search", "-w", "garden", "-w", "house", "heron", "--at", "v1.0")
    assert code == 2
    assert "--wiki" in errors
    assert run("remove", "garden", "--yes")[0] == 0
