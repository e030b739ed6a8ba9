"""The API of a wiki with a broken setup, and with an unexpected error."""

import logging

import pytest
from flask import Flask

from wikiholt.domain.git import Author
from wikiholt.errors import IndexMissing, InvalidSetting
from wikiholt.interfaces.http.problem_details import make_problem_response
from wikiholt.interfaces.otterwiki.api import OtterwikiApi
from wikiholt.interfaces.otterwiki.permissions import SharedKey

SHARED = SharedKey("the-key-of-otterwiki-api", Author("Agent", "agent@example.org"))


class BrokenRuntime:
    """A plugin runtime that cannot be opened."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def application(self) -> object:
        raise self._error

    def get_current_wiki(self) -> object:
        raise self._error


def send_request(error: Exception, path: str, times: int = 1) -> tuple[int, str]:
    api = OtterwikiApi(BrokenRuntime(error), SHARED)  # type: ignore[arg-type]
    for _ in range(times):
        with Flask("wiki").test_request_context(path):
            answer = api.handle_request()
    return answer.status_code, answer.get_data(as_text=True)


@pytest.mark.parametrize("path", ["/api/v1/health", "/api/v1/pages", "/api/v1/search?q=a"])
def test_a_broken_setup_is_logged_once_and_not_shown_to_clients(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.interfaces.otterwiki._logged_reasons", set())
    error = InvalidSetting("There is no directory /srv/secret/place.", hint="Make /srv/secret/place.")
    with caplog.at_level(logging.ERROR):
        status, text = send_request(error, path, times=3)
    assert (status, "secret" in text) == (503, False)
    assert '"detail":"Search is not set up correctly in this wiki."' in text
    assert [record.getMessage().count("/srv/secret/place.") for record in caplog.records] == [2]


def test_a_wiki_that_is_not_indexed_yet_says_when_to_try_again() -> None:
    response = make_problem_response(IndexMissing("this wiki is not indexed yet"))
    assert (response.status_code, int(response.headers["Retry-After"]) >= 1) == (503, True)


def test_an_internal_error_response_has_no_details(caplog: pytest.LogCaptureFixture) -> None:
    status, text = send_request(RuntimeError("at /srv/secret/place"), "/api/v1/pages")
    assert (status, "secret" in text) == (500, False)
    assert "at /srv/secret/place" in caplog.text


def test_the_shared_key_comes_from_the_environment_first_and_an_empty_key_is_rejected() -> None:
    config = {"OTTERWIKI_API_KEY": "of-settings", "OTTERWIKI_API_AUTHOR_NAME": "An <Agent>\n"}
    assert SharedKey.from_environment(config, {"OTTERWIKI_API_KEY": "of-environment"}).matches("of-environment")
    from_settings = SharedKey.from_environment(config, {"OTTERWIKI_API_KEY": ""})
    assert from_settings.matches("of-settings")
    assert from_settings.author == Author("An Agent", "api@otterwiki.local")
    for config in ({}, {"OTTERWIKI_API_KEY": "  "}):
        assert not SharedKey.from_environment(config, {}).matches("")
    assert "of-settings" not in repr(from_settings)
