import random
import tracemalloc
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import Blob
from wikiholt.errors import SourceCorrupt, SourceMissing
from wikiholt.git.source import GitSource

MAX_BLOB_BYTES = 1_000_000


def test_blobs_come_in_the_requested_order_with_repetitions(repository: Repository, source: GitSource) -> None:
    blobs = [repository.write_blob(text) for text in (b"one", b"", b"three\n", b"\0\xff")]
    requested = [blobs[2], blobs[0], blobs[1], blobs[0], blobs[3]]
    assert [blob.data for blob in source.read_blobs(requested, MAX_BLOB_BYTES)] == [
        b"three\n",
        b"one",
        b"",
        b"one",
        b"\0\xff",
    ]


def test_an_empty_request_reads_nothing(repository: Repository, source: GitSource) -> None:
    assert list(source.read_blobs([], MAX_BLOB_BYTES)) == []


def test_missing_blobs_do_not_harm_the_others(repository: Repository, source: GitSource) -> None:
    blob = repository.write_blob(b"one")
    odd = ["0" * 40, "HEAD", "", f"{blob}\n{blob}", "-p", blob[:12]]
    read = list(source.read_blobs([blob, *odd, blob], MAX_BLOB_BYTES))
    assert read == [Blob(blob, 3, b"one"), *(Blob(name, -1, None) for name in odd), Blob(blob, 3, b"one")]


def test_a_tree_or_commit_is_not_a_blob(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    blob = source.read_tree(commit)["Home.md"].blob
    assert [found.size for found in source.read_blobs([commit, blob], MAX_BLOB_BYTES)] == [-1, 3]


def test_a_blob_over_the_limit_is_skipped_without_being_kept_in_memory(
    repository: Repository, source: GitSource
) -> None:
    large = repository.write_blob(random.Random(1).randbytes(20_000_000))
    small, edge, over = (
        repository.write_blob(b"small"),
        repository.write_blob(b"x" * MAX_BLOB_BYTES),
        repository.write_blob(b"x" * (MAX_BLOB_BYTES + 1)),
    )
    tracemalloc.start()
    read = list(source.read_blobs([large, small, edge, over], MAX_BLOB_BYTES))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(blob.size, blob.data is None) for blob in read] == [
        (20_000_000, True),
        (5, False),
        (MAX_BLOB_BYTES, False),
        (MAX_BLOB_BYTES + 1, True),
    ]
    assert peak < 6_000_000


def test_five_thousand_blobs_are_read_by_one_process(repository: Repository, source: GitSource) -> None:
    texts = [f"Page {number}\n".encode() * (number % 40) for number in range(5000)]
    stream = b"".join(b"blob\nmark :%d\ndata %d\n%s\n" % (n + 1, len(t), t) for n, t in enumerate(texts))
    repository.run_git("fast-import", "--quiet", "--export-marks=marks", stdin=stream)
    marks = dict(line.split() for line in (repository.path / "marks").read_text().splitlines())
    blobs = [marks[f":{number + 1}"] for number in range(5000)]
    assert [blob.data for blob in source.read_blobs(iter(blobs), MAX_BLOB_BYTES)] == texts


def test_a_reader_that_stops_early_leaves_no_process_behind(repository: Repository, source: GitSource) -> None:
    blobs = [repository.write_blob(b"x" * 500_000), repository.write_blob(b"y" * 500_000)]
    reading = source.read_blobs(blobs * 100, MAX_BLOB_BYTES)
    assert next(reading).size == 500_000
    reading.close()  # type: ignore[attr-defined]
    assert list(reading) == []


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "noise", "another blob's content"])
def test_a_damaged_loose_object_does_not_affect_others(repository: Repository, source: GitSource, damage: str) -> None:
    noise = random.Random(2).randbytes(100_000)
    blobs = [repository.write_blob(b"first"), repository.write_blob(noise), repository.write_blob(b"last")]
    file = repository.get_loose_object_file(blobs[1])
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 0xFF
    file.write_bytes(
        {
            "truncated": content[: len(content) // 2],
            "flipped": bytes(flipped),
            "empty": b"",
            "noise": b"this is not zlib",
            "another blob's content": repository.get_loose_object_file(blobs[0]).read_bytes(),
        }[damage]
    )
    assert [blob.data for blob in source.read_blobs(blobs * 2, MAX_BLOB_BYTES)] == [b"first", None, b"last"] * 2
    assert [blob.size for blob in source.read_blobs([blobs[1]], MAX_BLOB_BYTES)] == [-1]


def test_a_truncated_pack_loses_only_its_own_objects(repository: Repository, source: GitSource) -> None:
    packed = [repository.commit({"Home.md": f"{number}\n" * 200}) for number in range(3)]
    blobs = [source.read_tree(commit)["Home.md"].blob for commit in packed]
    repository.run_git("gc", "--quiet")
    loose = repository.write_blob(b"still here")
    pack = next((repository.path / ".git" / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:60])
    read = list(source.read_blobs([*blobs, loose], MAX_BLOB_BYTES))
    assert [blob.id for blob in read] == [*blobs, loose]
    assert [blob.data for blob in read] == [None, None, None, b"still here"]
    with pytest.raises(SourceCorrupt):
        source.read_tree(packed[-1])


def test_flipped_bytes_in_a_pack_never_come_as_text(repository: Repository, source: GitSource) -> None:
    generator = random.Random(3)
    texts = {f"{number}.md": generator.randbytes(3000) for number in range(20)}
    commit = repository.commit(dict(texts))
    blobs = {name: entry.blob for name, entry in source.read_tree(commit).items()}
    repository.run_git("gc", "--quiet")
    pack = next((repository.path / ".git" / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    for position in range(20_000, 50_000, 5_000):
        content[position] ^= 0x55
    pack.write_bytes(bytes(content))
    read = dict(zip(blobs, source.read_blobs(blobs.values(), MAX_BLOB_BYTES), strict=True))
    lost = [name for name, blob in read.items() if blob.data is None]
    assert 0 < len(lost) <= 6
    assert all(read[name].data == text for name, text in texts.items() if name not in lost)


def test_an_lfs_pointer_is_a_blob_like_any_other(repository: Repository, source: GitSource) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
    assert [blob.data for blob in source.read_blobs([repository.write_blob(pointer)], MAX_BLOB_BYTES)] == [pointer]


def test_a_repository_removed_during_a_read_is_an_error(repository: Repository, source: GitSource) -> None:
    blobs = [repository.write_blob(f"{number}".encode()) for number in range(3)]
    reading = source.read_blobs((blob for blob in _then_remove(blobs, repository)), MAX_BLOB_BYTES)
    with pytest.raises((SourceCorrupt, SourceMissing)):
        list(reading)


def _then_remove(blobs: list[str], repository: Repository):  # type: ignore[no-untyped-def]
    (repository.path / ".git" / "HEAD").unlink()
    yield from blobs


def test_a_partial_clone_is_never_completed_over_the_network(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": "one", "b.md": "two"})
    repository.run_git("config", "uploadpack.allowFilter", "true")
    options = ("--quiet", "--no-checkout", "--filter=blob:none")
    repository.run_git("clone", *options, f"file://{repository.path}", str(tmp_path / "partial"))
    source = GitSource(tmp_path / "partial")
    tree = source.read_tree(source.get_head())
    assert [blob.size for blob in source.read_blobs([entry.blob for entry in tree.values()], MAX_BLOB_BYTES)] == [
        -1,
        -1,
    ]
