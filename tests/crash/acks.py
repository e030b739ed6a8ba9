"""What the product has said it did: that much must be true afterwards, however the process ended that said so."""

from dataclasses import dataclass, field
from enum import Enum

from tests.crash.child_process import Messages
from tests.support.git_repository import Repository
from wikiholt.wikis.registry import Registry


class Uncertainty(Enum):
    """Something was begun and never said to be done: it may be so or not."""

    UNSURE = "unsure"


UNSURE = Uncertainty.UNSURE


@dataclass(slots=True)
class Acks:
    """Wikis by slug (their id; None when removed), tokens (whether they open), pages (content; None when deleted)."""

    wikis: dict[str, str | Uncertainty | None] = field(default_factory=dict)
    tokens: dict[str, bool | Uncertainty] = field(default_factory=dict)
    pages: dict[str, str | Uncertainty | None] = field(default_factory=dict)

    def record(self, messages: Messages) -> None:
        """Take in what a process told, in its order."""
        for said, kind, name, value in (line for line in messages if line[0] in ("begin", "done")):
            assert name is not None
            if kind == "wiki":
                self.wikis[name] = UNSURE if said == "begin" else value
            elif kind == "page":
                self.pages[name] = UNSURE if said == "begin" else value
            else:
                self.tokens[name] = UNSURE if said == "begin" else kind == "key"

    def check_registry(self, registry: Registry, *, since_backup: bool = False) -> None:
        """The registry holds what was acknowledged; after a restore, what it held when the gate began."""
        found = {wiki.slug: wiki.id for wiki in registry.list_wikis()}
        for slug, expected in self.wikis.items():
            if expected is not UNSURE and not since_backup:
                assert found.get(slug) == expected, f"the registry says {slug} is {found.get(slug)}, not {expected}"
        assert found.keys() <= self.wikis.keys(), f"nobody added all of {sorted(found)}"
        for token, valid in self.tokens.items():
            if valid is not UNSURE:
                opens = registry.keys.find_by_token(token) is not None
                assert opens == valid, f"the key {token[:15]} should {'' if valid else 'not '}open its wiki"

    def check_pages(self, repository: Repository) -> None:
        """Every page that was said to be written is at HEAD as it was written."""
        there = set(repository.run_git("ls-tree", "-r", "--name-only", "HEAD").decode().splitlines())
        for path, content in self.pages.items():
            if content is UNSURE:
                continue
            file = f"{path}.md"
            held = repository.run_git("show", f"HEAD:{file}").decode() if file in there else None
            assert held == (content and content.strip()), f"{path} was said to hold {content!r} and holds {held!r}"
