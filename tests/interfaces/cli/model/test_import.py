"""`wikiholt import` with the real model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.api.importer.import_fixtures import GARDEN_PAGES, HARBOUR_PAGES, ImportFixture, to_metadata
from wikiholt import models
from wikiholt.api.importer.shared_index import SharedRow
from wikiholt.interfaces.cli.main import main


def encode_faiss(rows: list[SharedRow]) -> bytes:
    """The bytes that FAISS writes for flat vectors."""
    import struct

    vectors = np.stack([row.vector for row in rows])
    head = struct.pack("<4siqqq?iQ", b"IxFI", vectors.shape[1], len(vectors), 1 << 20, 1 << 20, True, 0, vectors.size)
    return head + vectors.tobytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two wikis, and a directory with the indexes of both."""
    place = tmp_path_factory.mktemp("cli")
    imports = ImportFixture(place, {"harbour": HARBOUR_PAGES, "garden": GARDEN_PAGES})
    model = models.load_embedder(models.DEFAULT_MODEL, precision="int8")
    for slug in ("harbour", "garden"):
        rows = imports.make_rows(slug, embedder=model)
        there = place / "int8" / slug
        there.mkdir(parents=True)
        (there / "index.faiss").write_bytes(encode_faiss(rows))
        (there / "embeddings.json").write_text(json.dumps([to_metadata(row) for row in rows]), "utf-8")
    imports.close()
    return place


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_import_command_plans_runs_and_verifies(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, there = ("--data", shutil.copytree(place / "data", tmp_path / "data").as_posix()), str(place / "int8")
    code, out, _ = run_command(capsys, *at, "import", "faiss", there, "--dry-run", "--json")
    planned = json.loads(out)
    assert code == 0
    assert {wiki["slug"]: (wiki["matched"], wiki["to_embed"]) for wiki in planned["wikis"]} == {
        "garden": (2, 0),
        "harbour": (3, 0),
    }
    code, out, _ = run_command(capsys, *at, "import", "faiss", there)
    assert code == 0
    assert "5 vectors verified: all equal; they are reused" in out
    assert "harbour: 3 vectors reused, 0 embedded" in out
    assert "verified: exactly the 3 pages and 3 chunks" in out
    code, out, _ = run_command(capsys, *at, "search", "-w", "harbour", "fish landed at the pier", "--json")
    assert json.loads(out)["results"][0]["path"] == "home"
    code, out, _ = run_command(capsys, *at, "search", "-w", "garden", "mackerelcanary", "--json")
    assert "mackerel" not in json.dumps(json.loads(out)["results"])


def test_rows_without_a_clear_owner_are_listed_and_rejected(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--data", shutil.copytree(place / "data", tmp_path / "data").as_posix())
    code, out, err = run_command(capsys, *at, "import", "faiss", str(place / "int8" / "harbour"))
    assert code == 2
    assert "Home: a page of garden, harbour" in out
    assert "--owner 'PATTERN=SLUG'" in err
    code, out, _ = run_command(capsys, *at, "import", "faiss", str(place / "int8" / "harbour"), "--owner", "*=harbour")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("faiss", "nowhere"), 2, "there is no directory nowhere"),
        (("chroma", "nowhere"), 2, "there is no chroma.sqlite3"),
        (("faiss", ".", "--owner", "Home"), 2, "--owner 'Home' has no name or no value"),
        (("faiss", ".", "--tenant", "a=missing"), 3, "missing"),
        (("faiss", ".", "--wiki", "missing"), 3, "missing"),
        (("postgres", "postgresql://u:secretword@127.0.0.1:1/x"), 2, "PostgreSQL error"),
        (("chroma", "http://127.0.0.1:1"), 2, "Chroma cannot be reached"),
    ],
)
def test_bad_input_is_an_error_with_a_hint(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    exit_code, out, err = run_command(capsys, "--data", str(place / "data"), "import", *arguments)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert "hint: " in err
    assert "secretword" not in err
