"""Minimal parsers for the files in deploy/."""

import re
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# ── systemd ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """The lines of a unit in order; a name may occur several times."""

    lines: tuple[tuple[str, str], ...]

    def get_all(self, name: str) -> list[str]:
        return [value for each, value in self.lines if each == name]

    def get_one(self, name: str) -> str:
        (value,) = self.get_all(name)
        return value

    def get_environment(self, instance: str) -> dict[str, str]:
        """The environment variables of an instance with state below /state."""
        pairs = (
            line.replace("%S", "/state").replace("%i", instance).split("=", 1) for line in self.get_all("Environment")
        )
        return dict(pairs)


def parse_unit(text: str) -> SystemdUnit:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";", "["))]
    return SystemdUnit(tuple((line.partition("=")[0], line.partition("=")[2]) for line in lines))


# ── containers ───────────────────────────────────────────────────────────────────────────────────

_PINNED_IMAGE = re.compile(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*(?:@sha256:[0-9a-f]{64})?")


def find_image_faults(containerfile: str) -> list[str]:
    """The faults of a container file as sentences. The last stage needs a user and a health check."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", containerfile, flags=re.MULTILINE))
    steps = [(line.split()[0].upper(), line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]
    faults = []
    for step, rest in steps:
        if step == "FROM" and not _PINNED_IMAGE.fullmatch(rest.split()[0]):
            faults.append(f"{rest.split()[0]} is not pinned")
        if step == "ADD":
            faults.append("ADD unpacks and downloads; COPY does not")
        if step == "RUN" and re.search(r"\b(?:curl|wget)\b|https?://", rest):
            faults.append("a step downloads something that nobody has checked")
        if step == "RUN":
            installs = [part for part in rest.split("&&") if re.search(r"\bpip\b.* install\b", part)]
            if any("--require-hashes" not in part and "--no-index" not in part for part in installs):
                faults.append("pip installs without hashes")
        if step in ("ENV", "ARG") and re.search(r"PASSWORD|TOKEN|SECRET|\bKEY\b", rest):
            faults.append("a secret stays in the image")
    users = [rest for step, rest in steps if step == "USER"]
    if not users or users[-1].partition(":")[0] in ("root", "0"):
        faults.append("it runs as root")
    faults += [f"there is no {wanted}" for wanted in ("HEALTHCHECK", "ENTRYPOINT") if wanted not in dict(steps)]
    return faults


def parse_hashes(lock: str) -> dict[tuple[str, str], frozenset[str]]:
    """The packages of a lock file with version and hashes."""
    blocks = re.findall(r"^([a-z0-9][\w.-]*)==(\S+)(.*?)(?=^\S|\Z)", lock, re.MULTILINE | re.DOTALL)
    return {
        (canonicalize_name(name), version): frozenset(re.findall(r"sha256:([0-9a-f]{64})", rest))
        for name, version, rest in blocks
    }


def list_requirements(package: str, extras: set[str]) -> set[str]:
    """All transitive requirements of a package with these extras in this environment."""
    packages: set[str] = set()
    waiting = [(package, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # pragma: no cover - not installed, so it has no requirements here
            continue
        for requirement in map(Requirement, lines):
            environments = [{"extra": extra} for extra in ("", *wanted)]
            if requirement.marker is None or any(
                requirement.marker.evaluate(environment) for environment in environments
            ):
                packages.add(canonicalize_name(requirement.name))
                below = (requirement.name, frozenset(requirement.extras))
                if below not in seen:
                    seen.add(below)
                    waiting.append(below)
    return packages


# ── nginx ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class NginxBlock:
    """A block of nginx: its lines as lists of words, and its inner blocks by the text before their brace."""

    entries: list[list[str]] = field(default_factory=list)
    inner: list[tuple[str, "NginxBlock"]] = field(default_factory=list)

    def get_lines(self, name: str) -> list[list[str]]:
        return [line for line in self.entries if line[0] == name]

    def get_blocks(self, name: str) -> list["NginxBlock"]:
        return [block for each, block in self.inner if each == name]

    def get_block(self, name: str) -> "NginxBlock":
        (block,) = self.get_blocks(name)
        return block


def parse_nginx(text: str) -> NginxBlock:
    tokens = re.findall(r"""#[^\n]*|"[^"]*"|'[^']*'|[{};](?=\s|$)|[^\s;]+(?=\s|;)""", text)
    stack, words = [NginxBlock()], list[str]()
    for token in tokens:
        if token.startswith("#"):
            continue
        if token == ";":
            stack[-1].entries.append(words)
            words = []
        elif token == "{":
            below = NginxBlock()
            stack[-1].inner.append((" ".join(words), below))
            stack.append(below)
            words = []
        elif token == "}":
            assert not words, f"{words} has no end"
            stack.pop()
        else:
            words.append(token.strip("\"'"))
    assert len(stack) == 1, "braces do not match"
    return stack[0]


# ── Prometheus ───────────────────────────────────────────────────────────────────────────────────

_PROMQL_KEYWORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "bool",
    "offset",
    "group_left",
    "group_right",
}


def find_metric_names(expression: str) -> list[tuple[str, set[str]]]:
    """The metrics of a PromQL expression, with the labels it uses."""
    listed = re.fullmatch(r"label_values\((.*), (\w+)\)", expression)
    if listed:
        return [(name, labels | {listed[2]}) for name, labels in find_metric_names(listed[1])]
    bare = re.sub(r"\[[^\]]*\]", "", re.sub(r'"[^"]*"', "", expression))
    grouped: set[str] = set()
    for group in re.findall(r"\b(?:by|without|on|ignoring) *\(([^)]*)\)", bare):
        grouped |= set(re.findall(r"\w+", group))
    bare = re.sub(r"\b(?:by|without|on|ignoring) *\([^)]*\)", "", bare)
    matches = re.findall(r"(?<![\w.$])([a-zA-Z_]\w*)(?! *\(|\w)(?:\{([^}]*)\})?", bare)
    return [
        (name, grouped | set(re.findall(r"(\w+) *[=!]", labels)))
        for name, labels in matches
        if name not in _PROMQL_KEYWORDS
    ]
