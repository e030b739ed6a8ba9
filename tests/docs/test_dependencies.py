"""A package of which more than the documented interface is used stays below the version that may change it."""

import tomllib

import pytest
from packaging.requirements import Requirement

from tests.docs.test_docs import read_text

INTERNALS = {
    "markdown-it-py": ("text/inline.py", "from markdown_it.common.utils import normalizeReference"),
    "onnxruntime": ("models/model_loader.py", "session._model_bytes"),
    "rich": ("interfaces/cli/terminal_markdown.py", "from rich.markdown import"),
    "uvicorn": ("interfaces/cli/http_server.py", "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol"),
}
"""For each package, a module and what it uses."""


@pytest.mark.parametrize("package", INTERNALS)
def test_internals_of_a_package_have_an_upper_bound(package: str) -> None:
    project = tomllib.loads(read_text("pyproject.toml"))["project"]
    (bounds,) = [each.specifier for each in map(Requirement, project["dependencies"]) if each.name == package]
    assert any(bound.operator in ("<", "==") for bound in bounds)
    module, use = INTERNALS[package]
    assert use in read_text(f"src/wikiholt/{module}"), "the bound may go"
