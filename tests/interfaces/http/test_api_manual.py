"""Checks docs/api.md against the service."""

import pytest

from tests.support.paths import ROOT
from tests.support.served_application import ServedApplication

MANUAL = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_and_parameter_is_in_the_manual(shared: ServedApplication) -> None:
    document = shared.make_client().get("/openapi.json").json()
    names = {"{path}": "PATH", "{slug}": "SLUG", "{key_id}": "ID", "{filename}": "FILE"}
    for path, operations in document["paths"].items():
        displayed = path
        for template, name in names.items():
            displayed = displayed.replace(template, name)
        assert displayed in MANUAL, displayed
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                assert parameter["description"], (path, parameter["name"])
                # The manual shows path parameters in capitals.
                assert parameter["in"] == "path" or parameter["name"] in MANUAL, (path, parameter["name"])


@pytest.mark.parametrize("status", [401, 403, 404, 405, 409, 412, 413, 422, 429, 503])
def test_every_status_is_explained(status: int) -> None:
    assert f"| {status} |" in MANUAL
