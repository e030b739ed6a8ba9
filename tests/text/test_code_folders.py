"""What a search ignores in a folder of code that it registers."""

import pytest

from wikiholt.text.code_folders import propose_ignored

GENERATED = ("*.approved.md", "node_modules/", "_site/")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["Home.md", "vendor/a.md"], ()),
        (["examples/package.json", "vendor/a.md"], ()),
        (["package.json", "Home.md"], GENERATED),
        (["../go.mod", "guide.md", "vendor/a.md"], GENERATED),
        (["go.mod", "vendor/x/a.md", "wiki/vendor/a.md"], (*GENERATED, "/vendor/")),
        (["go.mod", "web/composer.json", "web/vendor/a.md"], (*GENERATED, "/web/vendor/")),
        (["go.mod", "a,b/go.mod", "a,b/vendor/a.md"], GENERATED),
    ],
)
def test_generated_files_are_ignored_only_beside_a_manifest(files: list[str], expected: tuple[str, ...]) -> None:
    assert propose_ignored(files) == expected
