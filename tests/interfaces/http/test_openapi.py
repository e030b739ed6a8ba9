"""Checks the service against its OpenAPI document with valid and invalid requests."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
)

from tests.support.served_application import ServedApplication, serve_application
from tests.support.tiers import IS_FULL, choose
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeReranker

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", choose(12, 1)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("schema")) as served:
        # This test sends hundreds of unknown keys.
        served.application.rate_limiter.check_failures = lambda address: None  # type: ignore[method-assign]
        served.application.rate_limiter.refuse_key = lambda address, token: None  # type: ignore[method-assign]
        service = served.application.service
        service.components = replace(service.components, reranking=RerankConfig(FakeReranker, 30.0))
        service.close()  # reopen what was opened without it
        yield served


@pytest.fixture
def api(served: ServedApplication) -> schemathesis.BaseSchema:
    config = schemathesis.Config.from_dict(
        {"auth": {"openapi": {"key": {"bearer": served.tokens["operator"]}}}, "warnings": False}
    )
    return schemathesis.openapi.from_asgi("/w/alpha/openapi.json", served.app, config=config)


@pytest.fixture(scope="module")
def sent() -> set[object]:
    """The kinds of requests that were sent."""
    return set()


@schemathesis.serializer("application/x-ndjson")
def serialize_line(_: object, value: object) -> bytes:
    """A body of one line. Its schema is that of a line."""
    return value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"


schema = schemathesis.pytest.from_fixture("api")


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_operation_matches_its_schema(case: schemathesis.Case, sent: set[object]) -> None:
    if is_repeated(case, sent):
        return
    answer = case.call_and_validate(excluded_checks=is_beyond_schema(case))
    assert answer.status_code < 500
    assert "betacanary" not in answer.text, "no text of the other wiki"


def is_repeated(case: schemathesis.Case, sent: set[object]) -> bool:
    """Whether the short form has sent such a request: the same operation, parameter, and kind of value.

    For a wrong type, for example, a parameter gets ten values.
    """
    if IS_FULL or case.meta is None or not isinstance(data := case.meta.phase.data, CoveragePhaseData):
        return False
    kind = (case.method, case.operation.path, data.scenario, data.parameter_location, data.parameter)
    if kind in sent:
        return True
    sent.add(kind)
    return False


def is_beyond_schema(case: schemathesis.Case) -> list[schemathesis.CheckFunction]:
    """The checks that expect more of an operation than a schema can describe."""
    excluded: list[schemathesis.CheckFunction] = []
    # A bad line is reported in the response and does not affect the others.
    if case.operation.path.endswith("/pages:bulk"):
        excluded.append(negative_data_rejection)
    query = case.query or {}
    doubled = {"path", "prefix"} <= query.keys() or {"since", "updated_since"} <= query.keys()
    is_wordless = "q" in query and not any(map(str.isalnum, str(query["q"])))
    # Only the service knows valid page names, what a word is, and which parameters exclude each other.
    if doubled or is_wordless or "{path}" in case.path or "path" in query or case.method in ("POST", "PATCH"):
        excluded.append(positive_data_acceptance)
    # This is a valid page name: PUT writes the page `x/history`.
    if case.path.endswith(("/history", "/rename", "/attachments", "/{filename}")):
        excluded += [unsupported_method, allow_header_conformance]
    return excluded
