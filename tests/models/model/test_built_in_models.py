"""The default model with its real weights."""

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
from tests.support.wait import TIMEOUT_S
from wikiholt.errors import InvalidInput
from wikiholt.models import identify_model
from wikiholt.models.embedder import OnnxEmbedder

TEXTS = (
    "Backups run every night at two.",
    "The kettle is in the kitchen cupboard, on the left, behind the flour and the sugar.",
    "Rollback: check out the previous tag and restart the service.",
    "猫が好きです",
    "",
    "   ",
    "a" * 300,
)


def test_it_passes_its_self_test(int8: OnnxEmbedder) -> None:
    int8.run_self_test()
    assert int8.dimensions == 384
    assert int8.max_tokens == 510


def test_vectors_are_unit_float32_even_of_empty_text(int8: OnnxEmbedder) -> None:
    vectors = int8.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert int8.embed_passages([]).shape == (0, 384)


def test_meaning_is_nearer_than_words(int8: OnnxEmbedder) -> None:
    query = int8.embed_query("how to undo a bad deployment")
    assert int(np.argmax(int8.embed_passages(TEXTS[:3]) @ query)) == 2


def test_vectors_do_not_depend_on_the_batch_or_on_threads(int8: OnnxEmbedder) -> None:
    alone = np.stack([int8.embed_passages([text])[0] for text in TEXTS])
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(int8.embed_passages, [TEXTS, TEXTS[::-1], TEXTS * 2, TEXTS[2:]]):
            assert all(any(np.array_equal(row, one) for one in alone) for row in together)
    assert np.array_equal(int8.embed_passages(TEXTS), alone)


def test_a_query_is_embedded_as_the_passage_of_the_same_text(int8: OnnxEmbedder) -> None:
    assert np.array_equal(int8.embed_query(TEXTS[0]), int8.embed_passages([TEXTS[0]])[0])


def test_passage_over_the_window_is_refused_and_one_that_fits_is_not(int8: OnnxEmbedder) -> None:
    fitting = " ".join(["cat"] * int8.max_tokens)
    with pytest.raises(InvalidInput, match=f"{int8.max_tokens + 3} tokens") as caught:
        int8.embed_passages(["fits", f"{fitting} cat"])
    assert str(int8.max_tokens) in caught.value.hint
    assert int8.embed_passages([fitting]).shape == (1, 384)
    assert int8.embed_passages(["still", "alive"]).shape == (2, 384)


def test_query_over_the_window_is_cut_to_what_fits(int8: OnnxEmbedder) -> None:
    fitting = " ".join(["cat"] * int8.max_tokens)
    assert np.array_equal(int8.embed_query(f"{fitting}{' cat' * 4000}"), int8.embed_query(fitting))


def test_token_spans_go_beyond_the_128_tokens_of_the_tokenizer_file(int8: OnnxEmbedder) -> None:
    assert len(int8.get_token_spans(" ".join(["cat"] * 1000))) == 1000


def test_token_spans_name_the_characters_of_each_token(int8: OnnxEmbedder) -> None:
    text = "Überprüfe 猫 x"
    found = [text[start:end] for start, end in dict.fromkeys(int8.get_token_spans(text))]
    assert "".join(found) == "Überprüfe猫x"


@given(st.text(st.characters(), max_size=200))
@settings(max_examples=limit_examples(300), deadline=None)
def test_token_spans_are_in_order_inside_any_text(int8: OnnxEmbedder, text: str) -> None:
    last = 0
    for start, end in int8.get_token_spans(text):
        assert last <= start <= end <= len(text)
        last = start


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=limit_examples(40), deadline=None)
def test_any_text_has_a_vector(int8: OnnxEmbedder, text: str) -> None:
    assert np.linalg.norm(int8.embed_query(text)) == pytest.approx(1, abs=1e-4)


def test_the_fingerprint_names_model_and_precision(int8: OnnxEmbedder) -> None:
    assert int8.fingerprint.startswith(f"{int8.name}/int8/")
    assert int8.fingerprint == identify_model(int8.name, "int8").fingerprint


def _embed_in_child(embedder: OnnxEmbedder, to: Connection) -> None:
    to.send(embedder.embed_passages(TEXTS[:3]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_embeds_with_the_parents_model(int8: OnnxEmbedder) -> None:
    expected = int8.embed_passages(TEXTS[:3])
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_embed_in_child, args=(int8, sending))
    child.start()
    assert receiving.poll(TIMEOUT_S)
    assert np.array_equal(receiving.recv(), expected)
    child.join(TIMEOUT_S)
    assert child.exitcode == 0


_SCRIPT = """
import sys, socket
def refuse(*_, **__): raise AssertionError("network")
socket.socket.connect = refuse
import wikiholt.models
embedder = wikiholt.models.load_embedder()
embedder.run_self_test()
embedder.embed_passages(["one", "two", "three"])
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
