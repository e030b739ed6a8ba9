"""Making what one index holds equal to a tree: compare, index what differs in batches, verify, set the revision.

The tree is compared with the index, never with a log of events. A process compares whole trees the first time; as long
as nobody else has written the index since, only the difference of two trees is looked at after that, so that an edit
costs the same in a large wiki as in a small one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from wikiholt.batches import Batches, Pause, Tally
from wikiholt.errors import NoPages, SyncFailed
from wikiholt.model import Change, Problem, State, SyncReport, TreeEntry
from wikiholt.pages import Pipeline
from wikiholt.planning import Work, difference, plan
from wikiholt.ports import Embedder, Source, WikiIndex

AGAIN = "run `wikiholt sync` again; if it stays so, run `wikiholt doctor`"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sync is."""

    pages_done: int
    pages_total: int
    chunks_embedded: int


def unseen(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how far a sync is, and says when it is to let others go first."""

    progress: Callable[[Progress], None]
    pause: Callable[[], Pause]


@dataclass(frozen=True, slots=True)
class _Trusted:
    """A state in which this process found an index equal to a whole tree; it holds while the version stays."""

    version: int
    revision: str
    total: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a sync that was paused had asked git for, kept until it is done."""

    revision: str
    times: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class Means:
    """With what pages are made into an index."""

    embedder: Embedder
    pipeline: Pipeline


class Converging:
    """Bound to one wiki's source; remembers what it has compared. For the one thread that holds the writer lock."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._trusted: dict[int, _Trusted] = {}
        self._begun: _Begun | None = None

    def make_equal(self, index: WikiIndex, donor: WikiIndex, revision: str, watch: Watch, means: Means) -> SyncReport:
        """Have the index stand for the revision; vectors of `donor` are taken over if its model is the same.

        Raises Paused after a commit when the watch says so, SyncFailed, and NoPages.
        """
        state = index.state()
        work = self._compare(index, state, revision)
        times = self._times(work.plan.put, revision, state.revision)
        batches = Batches(index, donor, self._source, means.embedder, means.pipeline, times)
        tell = watch.progress
        tally = batches.run(work.entries, work.plan.moved, lambda t: tell(_progress(t, len(work.entries))), watch.pause)
        self._trusted.pop(index.generation, None)
        self._begun = None
        index.apply(Change(deleted=work.plan.deleted))
        problems = _verified(index, work)
        index.apply(Change(revision=revision))
        self._trusted[index.generation] = _Trusted(index.version(), revision, work.total)
        _require_pages(work.total, problems)
        return _report(revision, work, tally, problems)

    def _times(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When the files last changed; after a pause that is remembered, for git has to walk the history to tell."""
        known = self._begun
        if known is None or known.revision != revision or not known.times.keys() >= set(files):
            known = self._begun = _Begun(revision, self._source.last_changed(files, revision, since))
        return known.times

    def _compare(self, index: WikiIndex, state: State, revision: str) -> Work:
        """What separates the index from the revision, by the trees' difference where that is enough."""
        listed = index.problems()
        known = self._trusted.get(state.generation)
        if known and (state.version, state.revision) == (known.version, known.revision):
            changes = self._source.changes(known.revision, revision)
            if changes is not None:
                return difference(changes, listed, known.total)
        tree = self._source.tree(revision)
        todo = plan(tree, index.pages(), listed)
        return Work(todo, {file: tree[file] for file in todo.put}, len(tree), tree)


def _verified(index: WikiIndex, work: Work) -> tuple[Problem, ...]:
    """The problems, if and only if pages in the tree = indexed + listed problems."""
    problems = tuple(index.problems())
    pages = index.state().pages
    whole = work.tree is None or _equal(index.pages(), work.tree, problems)
    if not whole or pages + len(problems) != work.total:
        counts = f"{work.total} in the tree, {pages} indexed, {len(problems)} problems"
        raise SyncFailed(f"the counts do not add up: {counts}", hint=AGAIN)
    return problems


def _require_pages(total: int, problems: Sequence[Problem]) -> None:
    """Nothing indexed is an error, however truly it stands for HEAD."""
    if not total:
        raise NoPages(
            "there is no page at HEAD", hint="check the branch, the sub-directory and the ignore globs of this wiki"
        )
    if len(problems) == total:
        raise NoPages(
            f"none of the {total} pages could be indexed; the first: {problems[0].file}: {problems[0].detail}",
            hint="see the problems in `wikiholt status`",
        )


def _equal(have: Mapping[str, str], tree: Mapping[str, TreeEntry], problems: Sequence[Problem]) -> bool:
    odd = {problem.file for problem in problems}
    expected = {file: entry.blob for file, entry in tree.items() if file not in odd}
    return odd <= tree.keys() and dict(have) == expected


def _progress(tally: Tally, total: int) -> Progress:
    return Progress(tally.pages, total, tally.embedded)


def _report(revision: str, work: Work, tally: Tally, problems: tuple[Problem, ...]) -> SyncReport:
    odd = {problem.file for problem in problems}
    return SyncReport(
        revision,
        added=len(work.plan.added - odd),
        changed=len(work.plan.changed - odd),
        moved=len(work.plan.moved),
        deleted=work.plan.gone,
        unchanged=work.total - len(work.plan.put),
        chunks_embedded=tally.embedded,
        chunks_reused=tally.reused,
        problems=problems,
    )
