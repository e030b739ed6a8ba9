"""What a process acknowledged. It must be true afterwards, however the process ended."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tests.crash.child_process import Messages
from tests.support.git_repository import Repository
from wikiholt.wikis.registry import Registry


class Uncertainty(Enum):
    """An operation was started and not acknowledged: it may have happened or not."""

    UNSURE = "unsure"


UNSURE = Uncertainty.UNSURE


@dataclass(slots=True)
class Acks:
    """Wikis by slug (id; None when removed), tokens (whether they are valid), pages (content; None when deleted)."""

    wikis: dict[str, str | Uncertainty | None] = field(default_factory=dict)
    tokens: dict[str, bool | Uncertainty] = field(default_factory=dict)
    pages: dict[str, str | Uncertainty | None] = field(default_factory=dict)

    def record(self, messages: Messages) -> None:
        """Record the messages of a process, in their order."""
        for status, kind, name, value in (line for line in messages if line[0] in ("begin", "done")):
            assert name is not None
            if kind == "wiki":
                self.wikis[name] = UNSURE if status == "begin" else value
            elif kind == "page":
                self.pages[name] = UNSURE if status == "begin" else value
            else:
                self.tokens[name] = UNSURE if status == "begin" else kind == "key"

    def check_registry(self, registry: Registry) -> None:
        """The registry contains what was acknowledged."""
        found = {wiki.slug: wiki.id for wiki in registry.list_wikis()}
        for slug, expected in self.wikis.items():
            if expected is not UNSURE:
                assert found.get(slug) == expected, f"the registry has {found.get(slug)} for {slug}, not {expected}"
        assert found.keys() <= self.wikis.keys(), f"the registry has wikis that were not added: {sorted(found)}"
        for token, valid in self.tokens.items():
            if valid is not UNSURE:
                opens = registry.keys.find_by_token(token) is not None
                assert opens == valid, f"the key {token[:15]} should {'' if valid else 'not '}open its wiki"

    def check_pages(self, repository: Repository) -> None:
        """Every page whose write was acknowledged is at HEAD as it was written."""
        files = set(repository.run_git("ls-tree", "-r", "--name-only", "HEAD").decode().splitlines())
        for path, content in self.pages.items():
            if content is UNSURE:
                continue
            file = f"{path}.md"
            found = repository.run_git("show", f"HEAD:{file}").decode() if file in files else None
            assert found == (content and content.strip()), f"{path} should contain {content!r} and contains {found!r}"

    def check_files(self, directory: Path) -> None:
        """Every page whose write was acknowledged is in the directory as it was written."""
        for path, content in self.pages.items():
            if content is not UNSURE:
                file = directory / f"{path}.md"
                found = file.read_text() if file.exists() else None
                assert found == content, f"{path} should contain {content!r} and contains {found!r}"
