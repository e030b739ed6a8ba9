"""`wikiholt eval` of a wiki whose index is in PostgreSQL."""

import json
from pathlib import Path

import pytest
from psycopg import conninfo

from tests.support.git_repository import Repository
from wikiholt.interfaces.cli.main import main

pytestmark = pytest.mark.model

FILLER = "It stands on the shelf beside the door, and everyone who takes it writes that into the book, as is usual."


def test_a_database_index_is_compared_with_a_file_index_without_showing_the_password(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit(
        {
            "Home.md": f"# Home\n\nBefore the frost: [wrapping up the taps](water.md). {FILLER}\n",
            "water.md": f"# Water\n\nThe pipes are drained in November and insulated with straw. {FILLER}\n",
            "tools.md": f"# Tools\n\nSpades, rakes and the wheelbarrow are lent by the week. {FILLER}\n",
        }
    )
    password = str(conninfo.conninfo_to_dict(database)["password"])
    report = tmp_path / "report.html"
    stored = ["--data", str(tmp_path / "node"), "--set", f"store={database}"]
    in_files = ["--data", str(tmp_path / "files")]

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        assert password not in captured.out + captured.err
        return code, captured.out, captured.err

    for where in (stored, in_files):
        assert run(*where, "add", "plot", str(repository.path))[0] == 0
        assert run(*where, "sync", "plot", "--quiet")[0] == 0
    evaluating = (*stored, "eval", "plot", "--mode", "hybrid")
    code, out, _ = run(*evaluating, "--json", "--against", f"data={tmp_path / 'files'}", "--against", "store=")
    assert code == 0
    document = json.loads(out)
    assert document["questions"]["asked"] == {"links": 1}
    assert document["comparison"]["differences"]["ndcg@10"]["same"] == 1

    code, out, err = run(*evaluating, "--against", f"data={tmp_path / 'files'}")
    assert (code, out) == (2, "")
    assert "the index is in a database" in err

    code, out, err = run(*evaluating, "--against", "model=bge-small-en-v1.5")
    assert (code, out) == (2, "")
    assert "in a separate database" in err

    code, out, _ = run(*evaluating, "--against", f"store={database}", "--html", str(report))
    assert code == 0
    assert "hybrid against hybrid store=…" in out
    assert password not in report.read_text()
