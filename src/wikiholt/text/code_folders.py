"""What is ignored when a search registers a folder of code: test fixtures, and files that programs made."""

from collections.abc import Collection

_MANIFESTS = frozenset(
    {
        "Cargo.toml",
        "Gemfile",
        "build.gradle",
        "build.gradle.kts",
        "composer.json",
        "go.mod",
        "package.json",
        "pom.xml",
        "pyproject.toml",
        "setup.py",
    }
)
"""Files that declare a package: the folder that has one contains code."""
_PATTERN_CHARACTERS = frozenset(",*?[\\\n")
_GENERATED = ("*.approved.md", "node_modules/", "_site/")


def propose_ignored(files: Collection[str]) -> tuple[str, ...]:
    """Patterns for a folder with these files, none unless it is one of code; `../go.mod` counts.

    A folder `vendor` is only ignored beside a manifest: elsewhere it may be about vendors.
    """
    folders = {folder for folder, _, name in (file.rpartition("/") for file in files) if name in _MANIFESTS}
    if not any(set(folder.split("/")) <= {"", ".."} for folder in folders):
        return ()
    inside = sorted(folder for folder in folders if not folder.startswith("..") and not _PATTERN_CHARACTERS & {*folder})
    vendors = (f"{folder}/vendor/".lstrip("/") for folder in inside)
    return *_GENERATED, *(f"/{vendor}" for vendor in vendors if any(file.startswith(vendor) for file in files))
