"""The OpenAPI document against the service: what it promises holds, for what fits it and for what does not."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import allow_header_conformance, positive_data_acceptance, unsupported_method

from tests.support.served_application import ServedApplication, serve_application
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeReranker

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "12"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    with serve_application(tmp_path_factory.mktemp("schema")) as served:
        # Keys that are not known are sent by the hundred here.
        served.application.rate_limiter.check_failures = lambda address: None  # type: ignore[method-assign]
        served.application.rate_limiter.refuse_key = lambda address, token: None  # type: ignore[method-assign]
        service = served.application.service
        service.components = replace(service.components, reranking=RerankConfig(FakeReranker, 30.0))
        service.close()  # what is open was opened without
        yield served


@pytest.fixture
def api(served: ServedApplication) -> schemathesis.BaseSchema:
    config = schemathesis.Config.from_dict(
        {"auth": {"openapi": {"key": {"bearer": served.tokens["operator"]}}}, "warnings": False}
    )
    return schemathesis.openapi.from_asgi("/w/alpha/openapi.json", served.app, config=config)


schema = schemathesis.pytest.from_fixture("api")


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_operation_matches_its_schema(case: schemathesis.Case) -> None:
    answer = case.call_and_validate(excluded_checks=is_beyond_schema(case))
    assert answer.status_code < 500
    assert "betacanary" not in answer.text, "nothing of the other wiki"


def is_beyond_schema(case: schemathesis.Case) -> list[schemathesis.CheckFunction]:
    """The checks that ask more of an operation than a schema can say of it."""
    excluded: list[schemathesis.CheckFunction] = []
    query = case.query or {}
    doubled = {"path", "prefix"} <= query.keys() or {"since", "updated_since"} <= query.keys()
    # What a page may be called, and what must not be given together, only the service knows.
    if doubled or "{path}" in case.path or "path" in query or case.method in ("POST", "PATCH"):
        excluded.append(positive_data_acceptance)
    # A page may be called so: PUT writes the page `x/history`.
    if case.path.endswith(("/history", "/rename", "/attachments", "/{filename}")):
        excluded += [unsupported_method, allow_header_conformance]
    return excluded
