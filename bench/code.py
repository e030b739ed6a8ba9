"""How often the file that a commit changed is found with the subject of its commit message, beside git grep.

    python -m bench.code REPOSITORY... [--questions 60] [--data DIR] [--write]

Questions are the subjects of the last commits that changed one file of source code beside tests, documentation and
data; subjects of fewer than four words are left out. The index has the files of HEAD, documentation too; only hits in
source code count. git grep ranks files by how many different words of the question they contain, then by lines.
"""

import re
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.corpus import run_git
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest
from wikiholt.text.languages import get_stopwords
from wikiholt.text.page_names import is_code
from wikiholt.wikis.handle import WikiHandle

_TEST = re.compile(r"(?:^|[/_.-])tests?(?:[/_.-]|$)|(?:^|/)(?:examples?|docs?)/", re.IGNORECASE)
_SKIPPED = re.compile(r"(?i)merge|revert|bump|release|version|changelog|typo|lint|format")
_PREFIX = re.compile(r"^[\w./{}, *()!-]{1,40}: +|\s*\(?#\d+\)?")
_SHOWN = 10


def main() -> None:
    parser = make_parser(__doc__, "code", "data")
    parser.add_argument("repositories", type=Path, nargs="+")
    parser.add_argument("--questions", type=int, default=60)
    arguments = parser.parse_args()
    publish("code", __doc__, "\n".join(measure(arguments)), write=arguments.write)


def measure(arguments: Namespace) -> Iterator[str]:
    yield make_head("| repository | questions | way | file first | among three | among ten |")
    service = build_service(load_settings(arguments.data / "code", None, {}))
    for root in arguments.repositories:
        if root.name not in [wiki.slug for wiki in service.list_wikis()]:
            service.add(root.name, str(root.resolve()), {"files": "docs,code"})
        wiki = service.get_handle(root.name)
        wiki.sync()
        questions = list(find_questions(root, arguments.questions))
        ways: dict[str, Callable[[str], list[str]]] = {
            "hybrid": lambda text, wiki=wiki: search(wiki, text, SearchMode.HYBRID),  # type: ignore[misc]
            "words only": lambda text, wiki=wiki: search(wiki, text, SearchMode.KEYWORD),  # type: ignore[misc]
            "meaning only": lambda text, wiki=wiki: search(wiki, text, SearchMode.SEMANTIC),  # type: ignore[misc]
            "git grep": lambda text, root=root: grep(root, text),  # type: ignore[misc]
        }
        for name, find in ways.items():
            found = [(find(text), file) for text, file in questions]
            ranks = [files.index(file) if file in files else _SHOWN for files, file in found]
            shares = (f"{sum(rank < limit for rank in ranks) / len(ranks):.0%}" for limit in (1, 3, 10))
            yield f"| {root.name} | {len(questions)} | {name} | {' | '.join(shares)} |"
    service.close()


def find_questions(root: Path, count: int) -> Iterator[tuple[str, str]]:
    """Subjects of commits, each with the file that its commit changed."""
    there = set(run_git(root, "ls-files").splitlines())
    log = run_git(root, "log", "--no-merges", "--no-renames", "--name-only", "--format=%x00%s")
    seen = set[str]()
    for entry in log.split("\0")[1:]:
        subject, *files = filter(None, entry.splitlines())
        changed = [file for file in files if is_code(file) and not _TEST.search(file)]
        text = _PREFIX.sub("", subject).strip()
        is_usable = len(text.split()) >= 4 and not _SKIPPED.search(text) and text not in seen
        if len(changed) == 1 and changed[0] in there and is_usable and count > len(seen):
            seen.add(text)
            yield text, changed[0]


def search(wiki: WikiHandle, text: str, mode: SearchMode) -> list[str]:
    hits = wiki.search(SearchRequest(text, 50, mode=mode)).hits
    return [hit.file for hit in hits if is_code(hit.file)][:_SHOWN]


def grep(root: Path, text: str) -> list[str]:
    words = {word.casefold() for word in re.findall(r"\w{2,}", text)}
    scores: Counter[str] = Counter()
    for word in words - get_stopwords("english"):
        done = subprocess.run(["git", "-C", root, "grep", "-ciF", "-e", word, "HEAD"], capture_output=True, check=False)
        for line in done.stdout.decode().splitlines():
            file, _, lines = line.removeprefix("HEAD:").rpartition(":")
            if is_code(file):
                scores[file] += 1_000_000 + min(int(lines), 1_000)
    return [file for file, _ in scores.most_common(_SHOWN)]


if __name__ == "__main__":
    main()
