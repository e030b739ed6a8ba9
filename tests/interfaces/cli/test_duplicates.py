"""Near-duplicates at the command line: in hits, and as a list."""

import json

from tests.interfaces.cli.cli_fixtures import CommandRunner


def test_pages_without_copies(run: CommandRunner) -> None:
    code, out, _ = run("duplicates", "-w", "house")
    assert (code, out) == (1, "No two pages or passages are nearly the same.\n")
    code, out, _ = run("duplicates", "-w", "house", "--json")
    assert json.loads(out) == {"wiki": "house", "page_groups": 0, "pages": [], "passage_groups": 0, "passages": []}


def test_a_limit_out_of_range_is_refused(run: CommandRunner) -> None:
    code, _, err = run("duplicates", "-w", "house", "--limit", "0")
    assert code == 2
    assert "use 1 to 1000" in err
