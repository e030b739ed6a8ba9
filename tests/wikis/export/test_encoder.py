"""The static encoder: parts of pages, vectors of terms, repeatable numbers."""

import numpy as np
import pytest

from wikiholt.wikis.export.encoder import DIMENSIONS, SparseRows, assign_parts, build_encoder

TOPICS = 6


def make_passages(count: int = 120) -> tuple[np.ndarray, list[int], list[dict[int, int]]]:
    """Passages of a few topics, two to a page; each has two of the three terms of its topic and a common one."""
    random = np.random.default_rng(1)
    topics = np.arange(count) // 2 % TOPICS
    vectors = np.eye(TOPICS, 64)[topics] + random.normal(0, 0.1, (count, 64)) + 0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    terms = [
        {int(3 * topic + n % 3): 1, int(3 * topic + (n + 1) % 3): 2, 3 * TOPICS: 1} for n, topic in enumerate(topics)
    ]
    return vectors.astype(np.float32), [n // 2 for n in range(count)], terms


@pytest.mark.parametrize(
    ("pages", "parts", "owners"),
    [
        ([0, 0, 3], [0, 1, 2], [0, 0, 3]),
        ([5] * 8, [0, 0, 1, 1, 2, 2, 3, 3], [5] * 4),
        ([1, *[2] * 9], [0, 1, 1, 2, 3, 4, 4, 5, 6, 7], [1, *[2] * 7]),
    ],
)
def test_a_page_has_few_parts_of_neighbouring_passages(
    pages: list[int], parts: list[int], owners: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.wikis.export.encoder.MEAN_PARTS", 4)
    monkeypatch.setattr("wikiholt.wikis.export.encoder.MIN_PARTS_LIMIT", 4)
    found, found_owners = assign_parts(pages)
    assert found.tolist() == parts
    assert found_owners.tolist() == owners


def test_a_term_is_near_the_passages_of_its_topic() -> None:
    vectors, pages, terms = make_passages()
    encoder = build_encoder(vectors, pages, terms, 3 * TOPICS + 1)
    assert encoder.parts.shape == (len(vectors), DIMENSIONS)
    parts = encoder.parts / np.linalg.norm(encoder.parts, axis=1, keepdims=True)
    for topic in range(TOPICS):
        similarity = parts @ encoder.terms[3 * topic]
        nearest = np.argsort(-similarity)[: len(vectors) // TOPICS]
        assert {int(n) // 2 % TOPICS for n in nearest} == {topic}
    common = np.linalg.norm(encoder.terms[-1]) * encoder.term_scales[-1]
    assert common < np.linalg.norm(encoder.terms[0]) * encoder.term_scales[0] / 2, "a word of all passages says little"


def test_the_same_passages_give_the_same_numbers_of_four_bits() -> None:
    one, other = (build_encoder(*make_passages(), 3 * TOPICS + 1) for _ in range(2))
    for left, right in zip(one, other, strict=True):
        assert np.array_equal(left, right)
    for numbers in (one.parts, one.terms):
        assert set(np.unique(numbers)) <= set(range(-7, 8))


def test_a_term_of_one_part_has_no_vector() -> None:
    vectors, pages, terms = make_passages()
    encoder = build_encoder(vectors, pages, [*terms[:-1], {3 * TOPICS + 1: 5}], 3 * TOPICS + 2)
    assert encoder.term_scales[-1] == 0
    assert (encoder.term_scales[:-1] > 0).all()


def test_a_wiki_with_a_single_passage_has_an_encoder() -> None:
    encoder = build_encoder(np.ones((1, 8), np.float32), [0], [{0: 1}], 1)
    assert np.isfinite(encoder.parts).all()
    assert np.isfinite(encoder.terms).all()


def test_a_sparse_product_in_blocks_is_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    full = (random.random((40, 30)) * (random.random((40, 30)) < 0.2)).astype(np.float32)
    full[[3, 39]] = 0
    dense = random.random((30, 5)).astype(np.float32)
    rows, columns = np.nonzero(full)
    sparse = SparseRows(rows, columns, full[rows, columns], full.shape)
    for values in (7, 10**6):
        monkeypatch.setattr("wikiholt.wikis.export.encoder._BLOCK_VALUES", values)
        assert np.allclose(sparse.multiply(dense), full @ dense, atol=1e-5)
        assert np.allclose(
            sparse.transpose().multiply(dense[:, :1].repeat(40, 0)[:40]),
            full.T @ dense[:, :1].repeat(40, 0)[:40],
            atol=1e-4,
        )
