"""The default model: its file, its byte-level vocabulary, its scale."""

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.api.models import get_scale
from wikiholt.domain.search import SearchMode
from wikiholt.errors import ModelCorrupt
from wikiholt.models import DEFAULT_MODEL, identify_model, load_embedder, model_files
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.models.model_loader import load_model
from wikiholt.search.request import SearchRequest

REFERENCE_TEXTS = Path(__file__).with_name("reference_texts.txt")
MIN_COSINE = 0.985
"""Of a rounded vector to the one in fp32. The lowest here is .992; CPUs without VNNI round more."""
PAGES: dict[str, str | bytes | None] = {
    "backup.md": "# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days.",
    "coffee.md": "# Coffee machine\n\nDescale it once a month with vinegar and rinse it twice.",
    "doors.md": "# Doors\n\nThe side entrance is locked at eight; the guard has a spare key.",
}


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return load_embedder(DEFAULT_MODEL, threads=2)


def test_words_are_known_in_small_letters_and_as_names(embedder: OnnxEmbedder) -> None:
    known = ["restart", "wiki", "docker", "berlin", "Berlin"]
    assert [word for word in known if not embedder.is_known_word(word)] == []
    typos = ["restrat", "dcoker", "teh", "seperate", "recieve", "猫", "\ud800", ""]
    assert [word for word in typos if embedder.is_known_word(word)] == []


def test_a_question_is_nearest_to_its_answer_and_unrelated_texts_are_low_on_the_scale(embedder: OnnxEmbedder) -> None:
    passages = embedder.embed_passages([str(text) for text in PAGES.values()])
    cosines = passages @ embedder.embed_query("how long do we keep old data?")
    assert int(np.argmax(cosines)) == 0
    unrelated = passages @ embedder.embed_query("which planets have rings?")
    assert min(unrelated) > 0.3, "its raw cosines are far from zero"
    assert max(embedder.scale.normalize(float(cosine)) for cosine in unrelated) < 0.2
    assert embedder.scale.normalize(float(cosines[0])) > 0.35


def test_its_file_gives_the_vectors_of_the_weights_it_was_made_of(embedder: OnnxEmbedder) -> None:
    texts = REFERENCE_TEXTS.read_text().splitlines()
    vectors = np.load(REFERENCE_TEXTS.with_name(f"{DEFAULT_MODEL}.npy")).astype(np.float32)
    assert vectors.shape == (len(texts), embedder.dimensions)
    cosines = (embedder.embed_passages(texts) * vectors).sum(axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.mean() > 0.995
    assert {text: cosine for text, cosine in zip(texts, cosines, strict=True) if cosine < MIN_COSINE} == {}


def test_the_session_reads_the_words_from_the_mapped_file() -> None:
    mapped = load_model(DEFAULT_MODEL, None)
    assert mapped.shared_tensors
    ids = mapped.tokenizer.encode_query("how long do we keep old data?")
    before = mapped.run(ids)
    mapped.release_memory()
    np.testing.assert_array_equal(mapped.run(ids), before)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_file_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    directory, card = model_files.find_model(DEFAULT_MODEL)
    copy = shutil.copytree(directory, tmp_path / DEFAULT_MODEL)
    name = card.variants[card.precision].graph
    data = bytearray((copy / name).read_bytes())
    data[10_000_000] ^= damage == "flipped"
    sizes = {"truncated": 10_000_000, "flipped": len(data), "empty": 0}
    (copy / name).write_bytes(data[: sizes[damage]])
    monkeypatch.setattr(model_files, "BUILT_IN_DIRECTORY", tmp_path)
    with pytest.raises(ModelCorrupt, match="sha256") as caught:
        load_embedder(DEFAULT_MODEL)
    assert "reinstall Wikiholt" in caught.value.hint


def test_an_index_made_with_it_is_searched_on_its_scale_until_another_model_is_set(tmp_path: Path) -> None:
    wiki = Repository(tmp_path / "wiki")
    wiki.commit(PAGES)
    request = SearchRequest("restoring lost data", mode=SearchMode.SEMANTIC)
    with closing(open_service(tmp_path / "data", overrides={"model": DEFAULT_MODEL})) as service:
        service.add("night", str(wiki.path), {})
        handle = service.get_handle("night")
        assert handle.sync().chunks_embedded == len(PAGES)
        before = handle.search(request)
        assert (before.hits[0].path, before.degraded) == ("backup", False)
        state = handle.get_status().state
        assert state is not None
        assert get_scale(state.recipe) == identify_model(DEFAULT_MODEL, None).scale
    with closing(open_service(tmp_path / "data", overrides={"model": "bge-small-en-v1.5"})) as service:
        handle = service.get_handle("night")
        assert handle.search(request).hits == before.hits, "the previous model answers, on its own scale"
        assert handle.sync().rebuilt
        assert handle.search(request).hits[0].path == "backup"
