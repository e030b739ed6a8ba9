"""Models as directories: what works, and which error each kind of damage raises."""

from pathlib import Path

import numpy as np
import pytest

from tests.models import tiny_model
from tests.models.tiny_model import DIMENSIONS, build_onnx_graph, make_embedding_table, write_model
from wikiholt.errors import InvalidInput, ModelCorrupt, ModelMismatch, ModelMissing, ModelSelfTestFailed
from wikiholt.models import DEFAULT_MODEL, load_embedder, model_files
from wikiholt.models.model_loader import LoadedModel


def test_another_onnx_model_is_a_directory(tmp_path: Path) -> None:
    embedder = load_embedder(write_model(tmp_path))
    embedder.run_self_test()
    assert (embedder.dimensions, embedder.max_tokens, embedder.name) == (DIMENSIONS, 10, "tiny")
    rows = make_embedding_table()
    expected = rows[[1, 3, 4, 2]].mean(axis=0)
    assert embedder.embed_passages(["the cat"])[0] == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)


def test_pooling_follows_the_card(tmp_path: Path) -> None:
    first = load_embedder(write_model(tmp_path / "cls", pooling="cls"))
    assert first.embed_query("cat") == pytest.approx(
        make_embedding_table()[1] / np.linalg.norm(make_embedding_table()[1]), abs=1e-6
    )
    pooled = load_embedder(
        write_model(
            tmp_path / "none",
            pooling="none",
            files={"model.onnx": build_onnx_graph(make_embedding_table(), pooled=True)},
        )
    )
    mean = load_embedder(write_model(tmp_path / "mean"))
    assert pooled.embed_query("the cat") == pytest.approx(mean.embed_query("the cat"), abs=1e-6)


def test_weights_may_be_in_a_separate_file(tmp_path: Path) -> None:
    parts = {
        "model.onnx": build_onnx_graph(make_embedding_table(), external="model.data"),
        "model.data": make_embedding_table().tobytes(),
    }
    split = load_embedder(write_model(tmp_path / "split", files=parts, weights="model.data"))
    whole = load_embedder(write_model(tmp_path / "whole"))
    assert np.array_equal(split.embed_query("the cat"), whole.embed_query("the cat"))


def test_prefixes_precede_the_text_and_count_against_the_window(tmp_path: Path) -> None:
    plain = load_embedder(write_model(tmp_path / "plain"))
    prefixed = load_embedder(write_model(tmp_path / "prefixed", query_prefix="bank ", passage_prefix="the sofa "))
    assert np.array_equal(prefixed.embed_query("cat"), plain.embed_query("bank cat"))
    assert np.array_equal(prefixed.embed_passages(["cat"]), plain.embed_passages(["the sofa cat"]))
    assert prefixed.max_tokens == plain.max_tokens - 2
    assert prefixed.embed_passages(["cat " * prefixed.max_tokens]).shape == (1, DIMENSIONS)
    with pytest.raises(InvalidInput):
        prefixed.embed_passages(["cat " * (prefixed.max_tokens + 1)])


def test_the_fingerprint_follows_everything_a_vector_depends_on(tmp_path: Path) -> None:
    same = [load_embedder(write_model(tmp_path / name)).fingerprint for name in ("a", "b")]
    assert same[0] == same[1]
    others = [
        load_embedder(write_model(tmp_path / "c", pooling="cls")).fingerprint,
        load_embedder(write_model(tmp_path / "d", query_prefix="the ")).fingerprint,
        load_embedder(write_model(tmp_path / "e", passage_prefix="the ")).fingerprint,
        load_embedder(
            write_model(tmp_path / "f", files={"model.onnx": build_onnx_graph(make_embedding_table(8))})
        ).fingerprint,
    ]
    assert len({same[0], *others}) == 5


def test_an_unknown_model_name_raises_with_the_known_names() -> None:
    with pytest.raises(ModelMissing, match="no-such-model") as caught:
        load_embedder("no-such-model")
    assert DEFAULT_MODEL in caught.value.hint


def test_a_directory_without_a_card_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"card\.toml"):
        load_embedder(tmp_path)


def test_a_model_that_is_not_converted_yet_is_named_with_the_command() -> None:
    with pytest.raises(ModelMissing) as caught:
        load_embedder(model_files.CONVERTED_MODELS[1])
    assert "python -m training.convert multilingual-e5-small" in caught.value.hint


def test_an_unknown_precision_raises_with_the_known_precisions() -> None:
    with pytest.raises(ModelMismatch, match="int3") as caught:
        load_embedder(DEFAULT_MODEL, precision="int3")
    assert "int8" in caught.value.hint


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_file_that_does_not_match_its_digest_is_refused(tmp_path: Path, name: str) -> None:
    path = write_model(tmp_path) / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelCorrupt, match=f"{name}.*sha256"):
        load_embedder(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_model(tmp_path) / name).unlink()
    with pytest.raises(ModelMissing, match=name):
        load_embedder(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "references.json"])
def test_a_file_with_other_content_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelCorrupt):
        load_embedder(write_model(tmp_path, files={name: b"not what it should be"}, references="references.json"))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"dimensions": None}, "dimensions is missing"),
        ({"dimensions": 0}, "dimensions is 0"),
        ({"dimensions": "4"}, "not a int"),
        ({"window": True}, "window"),
        ({"pooling": "max"}, "pooling is 'max'"),
        ({"precision": "int8"}, r"no \[variants.int8\]"),
        ({"tokenizer": "other.json"}, "no sha256 for other.json"),
        ({"tokenizer": "../tokenizer.json"}, "no sha256"),
        ({"licence": None}, "licence is missing"),
    ],
)
def test_a_wrong_card_raises_with_the_wrong_field(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ModelCorrupt, match=complaint):
        load_embedder(write_model(tmp_path, **changes))


@pytest.mark.parametrize("line", ['"../up" = "00"', '"/abs" = "00"', '"model.onnx2" = "00"', "x = 3", "= nonsense"])
def test_a_card_with_wrong_files_is_refused(tmp_path: Path, line: str) -> None:
    card = write_model(tmp_path) / "card.toml"
    card.write_text(card.read_text() + line + "\n")
    with pytest.raises(ModelCorrupt, match=r"card\.toml"):
        load_embedder(tmp_path)


def test_a_card_with_the_wrong_dimension_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="4 dimensions, its card says 5"):
        load_embedder(write_model(tmp_path, dimensions=5))


def test_a_card_with_the_wrong_pooling_is_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    embedder = load_embedder(write_model(tmp_path, pooling="none"))
    with pytest.raises(ModelMismatch, match="shape"):
        embedder.run_self_test()


def test_a_graph_that_is_not_a_text_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match="pixels"):
        load_embedder(
            write_model(tmp_path, files={"model.onnx": build_onnx_graph(make_embedding_table(), extra_input="pixels")})
        )


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (np.zeros_like(make_embedding_table()), "zeros"),
        (np.full_like(make_embedding_table(), np.nan), "not finite"),
        (np.full_like(make_embedding_table(), np.inf), "not finite"),
        (np.ones_like(make_embedding_table()), "unrelated sentences"),
    ],
)
def test_a_model_that_returns_nonsense_fails_its_self_test(tmp_path: Path, rows: np.ndarray, complaint: str) -> None:
    embedder = load_embedder(write_model(tmp_path, files={"model.onnx": build_onnx_graph(rows)}))
    with pytest.raises(ModelSelfTestFailed, match=complaint) as caught:
        embedder.run_self_test()
    assert "nothing was indexed" in caught.value.hint


def test_invalid_vectors_are_never_returned_even_without_a_self_test(tmp_path: Path) -> None:
    rows = make_embedding_table()
    rows[tiny_model.VOCABULARY.index("bank")] = np.nan
    embedder = load_embedder(write_model(tmp_path, files={"model.onnx": build_onnx_graph(rows)}))
    embedder.embed_passages(["the cat", "a sofa"])
    with pytest.raises(ModelSelfTestFailed):
        embedder.embed_passages(["the cat", "bank", "a sofa"])


def test_a_valid_model_with_other_weights_fails_its_references(tmp_path: Path) -> None:
    references = b'[{"text": "the cat sleeps", "vector": [0.5, -0.5, 0.5, 0.5]}]'
    embedder = load_embedder(write_model(tmp_path, files={"references.json": references}, references="references.json"))
    with pytest.raises(ModelSelfTestFailed, match="the cat sleeps"):
        embedder.run_self_test()


def test_references_of_another_dimension_are_refused(tmp_path: Path) -> None:
    references = b'[{"text": "the cat sleeps", "vector": [0.5, -0.5]}]'
    with pytest.raises(ModelCorrupt, match="wrong dimension"):
        load_embedder(write_model(tmp_path, files={"references.json": references}, references="references.json"))


def test_a_passed_self_test_is_cached_until_the_model_fails_or_the_ttl_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = load_embedder(write_model(tmp_path))
    runs: list[str] = []
    really = LoadedModel.run
    monkeypatch.setattr(LoadedModel, "run", lambda model, ids: (runs.append("run"), really(model, ids))[1])

    def runs_self_test_again() -> bool:
        runs.clear()
        embedder.run_self_test()
        return bool(runs)

    assert [runs_self_test_again(), runs_self_test_again()] == [True, False]
    with monkeypatch.context() as broken:
        broken.setattr(LoadedModel, "run", lambda model, ids: np.full((1, 3, 4), np.nan, np.float32))
        with pytest.raises(ModelSelfTestFailed):
            embedder.embed_query("the cat")
        with pytest.raises(ModelSelfTestFailed):
            embedder.run_self_test()
    assert [runs_self_test_again(), runs_self_test_again()] == [True, False]
    monkeypatch.setattr("wikiholt.models.embedder._SELF_TEST_TTL_S", 0.0)
    assert runs_self_test_again(), "the result expires"
    monkeypatch.undo()
    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr(LoadedModel, "run", lambda model, ids: (runs.append("run"), really(model, ids))[1])
    assert runs_self_test_again(), "another process runs its own self-test"
