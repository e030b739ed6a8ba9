"""Past commits: which one a name or a date means, and what became of a file after it.

Only what tags, branches and the history of HEAD contain is found: a commit that a force-push removed stays removed.
"""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from difflib import get_close_matches

from wikiholt.domain.dates import parse_until
from wikiholt.domain.git import Commit, PastCommit
from wikiholt.errors import InvalidQuery, RevisionNotFound
from wikiholt.git.history import find_renames_of_commit, is_ancestor, read_last_deletion, to_datetime
from wikiholt.git.process import GitRunner

MAX_NAME_CHARS = 200
_NAME_SPACES = ("refs/tags/", "refs/heads/", "refs/remotes/")
_NO_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^-|^$")
"""What names of tags and branches cannot contain. Git would read some of it as an expression."""
_COMMIT_ID = re.compile(r"[0-9a-f]{7,64}")
_MAX_KNOWN_NAMES = 5000
_MAX_RENAMES = 20
_MAX_PAUSE = timedelta(days=30)


def find_commit(git: GitRunner, name: str, head: str, *, is_shallow: bool) -> PastCommit:
    """The commit of a tag, a branch, a commit id or a date (the last commit before its end, in UTC), in this order.

    Raises RevisionNotFound with the nearest names, and InvalidQuery.
    """
    name = name.strip()
    if len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidQuery("that is no tag, branch, commit or date", hint="name one, such as 2025-06-01")
    revision = head if name == "HEAD" else None if _NO_NAME.search(name) else _find_reference(git, name)
    if revision is None and _COMMIT_ID.fullmatch(name.lower()):
        revision = _find_by_id(git, name.lower(), head)
    if revision is None:
        at = None
        with suppress(InvalidQuery):
            at = parse_until(name)
        revision = _find_at_date(git, at, head) if at is not None else None
        if revision is None:
            raise _make_unknown_error(git, name, head, is_date=at is not None, is_shallow=is_shallow)
    return PastCommit(name, revision, _read_commit_date(git, revision))


def trace_file(git: GitRunner, file: str, commit: str, head: str) -> tuple[str | None, Commit | None]:
    """Where a file of a commit that is not at HEAD is there, or else the commit that removed it.

    Neither if the history of HEAD never had it. Files are named from the root of the repository.
    """
    seen = {file}
    for _ in range(_MAX_RENAMES):
        removal = read_last_deletion(git, file, commit, head)
        if removal is None:
            return None, None
        new = find_renames_of_commit(git, removal.revision).get(file)
        if new is None or new in seen:
            return None, removal
        if git.run("cat-file", "-e", f"{head}:{new}").status == 0:
            return new, removal
        file, commit = new, removal.revision
        seen.add(new)
    return None, removal


def _find_reference(git: GitRunner, name: str) -> str | None:
    for space in _NAME_SPACES:
        result = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{space}{name}^{{commit}}")
        if result.status == 0:
            return result.stdout.decode().strip()
    return None


def _find_at_date(git: GitRunner, at: datetime, head: str) -> str | None:
    """The last commit of the main line at this time; None if there was none yet.

    The main line is that of the first parents, unless it has no commit in the weeks before: after a merge of upstream
    into a side line, first parents lead along that one. Then it is the last commit of all.
    """
    until = ("-1", f"--before=@{int(at.timestamp())} +0000", head, "--")
    main, last = (
        git.run("rev-list", *options, *until).stdout.decode().strip() for options in (("--first-parent",), ())
    )
    if main and _read_commit_date(git, last) - _read_commit_date(git, main) <= _MAX_PAUSE:
        return main
    return last or None


def _find_by_id(git: GitRunner, digits: str, head: str) -> str | None:
    """The only commit with these digits that is in the history of HEAD, or of a tag or branch."""
    found = git.run("rev-parse", f"--disambiguate={digits}").stdout.decode().split()
    commits = [each for each in found if git.run("cat-file", "-t", each).stdout.strip() == b"commit"]
    reachable = [each for each in commits if is_reachable(git, each, head)]
    return reachable[0] if len(reachable) == 1 else None


def is_reachable(git: GitRunner, commit: str, head: str) -> bool:
    """Whether HEAD, a tag or a branch contains the commit."""
    if is_ancestor(git, commit, head):
        return True
    return bool(git.run("for-each-ref", "--count=1", f"--contains={commit}", *_NAME_SPACES).stdout.strip())


def _read_commit_date(git: GitRunner, revision: str) -> datetime:
    result = git.run("log", "--no-walk", "--no-notes", "--format=%ct", revision)
    if result.status != 0:
        raise result.to_error(f"read commit {revision}")
    return to_datetime(result.stdout)


def _make_unknown_error(git: GitRunner, name: str, head: str, *, is_date: bool, is_shallow: bool) -> RevisionNotFound:
    message = f"There was no commit yet at {name}." if is_date else f"There is no tag, branch or commit {name!r} here."
    if is_shallow:
        hint = "This clone is shallow: fetch older commits with `git fetch --unshallow`, and tags with `--tags`."
    elif is_date:
        first = git.run("log", "--max-parents=0", "--first-parent", "-1", "--format=%cs", head).stdout.decode().strip()
        hint = f"The first commit is of {first}."
    else:
        options = ("--sort=-creatordate", f"--count={_MAX_KNOWN_NAMES}", "--format=%(refname:short)")
        names = git.run("for-each-ref", *options, "refs/tags", "refs/heads").stdout.decode("utf-8", "replace").split()
        near = get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
        hint = f"Tags and branches: {', '.join(near)}. A date is written as 2025-06-01."
    return RevisionNotFound(message, hint=hint)
