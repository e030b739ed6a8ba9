"""Random edits of a wiki: what people, scripts and force-pushes do to a repository."""

from random import Random

from tests.support.documents import make_docx, make_pdf, make_picture
from tests.support.git_repository import Repository

TOPICS = ("boiler", "garden", "ledger", "printer", "router", "sauna", "tractor", "violin")
COMMON_WORD = "handbook"
"""A word of every page: an empty result for it is wrong."""


def make_page(rng: Random, number: int) -> str:
    """A page with a word that no other page has."""
    subject = rng.choice(TOPICS)
    tags = ", ".join(rng.sample(TOPICS, 2))
    parts = [f"---\ntitle: The {subject} {number}\ntags: [{tags}]\ncategory: {subject}\n---\n# The {subject} {number}"]
    parts.append(f"This {COMMON_WORD} page tells of unique{number} and edition{rng.randrange(10**6)}.")
    for section in range(rng.randrange(1, 5)):
        words = " ".join(rng.choice(TOPICS) + rng.choice(("", "s", "ing")) for _ in range(rng.randrange(20, 120)))
        parts.append(f"## Part {section} of {subject}\n\n{words}.")
    return "\n\n".join(parts)


def create_pages(repository: Repository, rng: Random, count: int) -> None:
    repository.commit({f"{'abc'[n % 3]}/page-{n}.md": make_page(rng, n) for n in range(count)}, "Start")
    repository.run_git("gc", "--quiet")


def make_random_edits(repository: Repository, rng: Random) -> str:
    """Make a few random changes. Returns their names."""
    steps = (_edit, _edit, _add, _delete, _rename, _bad_pages, _rewrite)
    chosen = rng.sample(steps, rng.randrange(1, 4))
    for step in chosen:
        step(repository, rng)
    return "+".join(sorted({step.__name__.strip("_") for step in chosen}))


def _list_pages(repository: Repository) -> list[str]:
    names = repository.run_git("ls-files", "-z").decode("utf-8", "surrogateescape").split("\0")
    return [name for name in names if name.endswith(".md") and "page-" in name]


def _edit(repository: Repository, rng: Random) -> None:
    names = _list_pages(repository)
    some = rng.sample(names, rng.randrange(1, len(names)))
    repository.commit({name: make_page(rng, int(name.split("page-")[1][:-3])) for name in some}, "Edit")


def _add(repository: Repository, rng: Random) -> None:
    first = rng.randrange(1000, 10**6)
    repository.commit(
        {f"new/page-{n}.md": make_page(rng, n) for n in range(first, first + rng.randrange(1, 60))}, "Add"
    )


def _delete(repository: Repository, rng: Random) -> None:
    names = _list_pages(repository)
    repository.commit(dict.fromkeys(rng.sample(names, len(names) // 4)), "Delete")


def _rename(repository: Repository, rng: Random) -> None:
    directory = rng.choice(sorted({name.rsplit("/", 1)[0] for name in _list_pages(repository)}))
    repository.run_git("mv", directory, f"moved-{rng.randrange(10**6)}")
    repository.commit({}, "Rename")


def _bad_pages(repository: Repository, rng: Random) -> None:
    bad = (b"\x00\xff" * 50, b"---\ntitle: [broken\n---\ntext", b"x" * 300_000, b"---\ntitle: 2024\n---\n\xe9\xff")
    repository.commit({f"bad-{rng.randrange(100)}.md": rng.choice(bad) for _ in range(3)}, "Spoil")


def add_documents(repository: Repository, rng: Random) -> None:
    """Commit new and changed documents of every kind of reader, most of them intact."""
    word = f"{COMMON_WORD} {rng.choice(TOPICS)}"
    made: dict[str, bytes] = {
        "paper.pdf": make_pdf([f"A {word}", "Page two"], "The paper"),
        "scan.pdf": make_pdf(["", ""]),
        "plan.docx": make_docx([("", f"The {word}")]),
        "pump.py": f"def start_{rng.choice(TOPICS)}():\n    return '{word}'\n".encode(),
        "plan.png": make_picture(),
    }
    files: dict[str, str | bytes | None] = {}
    for number in range(rng.randrange(2, 5)):
        name, data = rng.choice(sorted(made.items()))
        if rng.random() < 0.3:
            start = rng.randrange(len(data))
            data = rng.choice((data[:start], data[:start] + rng.randbytes(20) + data[start + 20 :]))
        files[f"papers/{number}-{name}"] = data
    repository.commit(files, "Documents")


def _rewrite(repository: Repository, rng: Random) -> None:
    """Rewrite the history: an orphan branch, or a reset to an older commit with new commits."""
    if rng.random() < 0.5:
        repository.run_git("checkout", "--quiet", "--orphan", f"other-{rng.randrange(10**6)}")
        repository.commit({}, "Start again")
    else:
        repository.run_git("reset", "--quiet", "--hard", "HEAD~1", check=False)
        repository.run_git("clean", "--quiet", "-fd")
    _edit(repository, rng)
