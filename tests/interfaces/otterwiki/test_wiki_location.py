"""The wiki of a request is determined with certainty, or not at all."""

import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType, SimpleNamespace

import flask
import pytest
from werkzeug.local import LocalProxy

from wikiholt.errors import InvalidSetting, WikiNotFound
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiResolver


def _install_module(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_wiki_is_found_from_the_current_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    _install_module(monkeypatch, "otterwiki.server", storage=SimpleNamespace(path=str(tmp_path / "link")))
    _install_module(monkeypatch, "otterwiki.wiki", storage=SimpleNamespace(path=str(tmp_path / "real")))
    assert WikiResolver("").resolve_request() == WikiLocation(str((tmp_path / "real").resolve()))


def test_if_otterwiki_modules_disagree_no_wiki_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    _install_module(monkeypatch, "otterwiki.server", storage=SimpleNamespace(path="/srv/one"))
    _install_module(monkeypatch, "otterwiki.wiki", storage=SimpleNamespace(path="/srv/two"))
    with pytest.raises(WikiNotFound) as refused:
        WikiResolver("").resolve_request()
    assert "/srv" not in refused.value.message + refused.value.hint


def test_without_a_storage_no_wiki_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    _install_module(monkeypatch, "otterwiki.server")
    _install_module(monkeypatch, "otterwiki.wiki")
    with pytest.raises(WikiNotFound):
        WikiResolver("").resolve_request()
    assert WikiResolver("").find_outside_request() == []


def test_an_unbound_proxy_selects_no_wiki(monkeypatch: pytest.MonkeyPatch) -> None:
    here: ContextVar[SimpleNamespace] = ContextVar("current_storage")
    for name in ("otterwiki.server", "otterwiki.wiki"):
        _install_module(monkeypatch, name, storage=LocalProxy(here))
    assert WikiResolver("").find_outside_request() == []
    with pytest.raises(WikiNotFound):
        WikiResolver("").resolve_request()
    here.set(SimpleNamespace(path="/data/garden"))
    assert WikiResolver("").resolve_request() == WikiLocation("/data/garden")


@pytest.mark.parametrize(
    ("answer", "place"), [("/srv/a", WikiLocation("/srv/a")), (("a", "/srv/a"), WikiLocation("/srv/a", "a"))]
)
def test_a_resolver_is_called_with_the_request(
    monkeypatch: pytest.MonkeyPatch, answer: object, place: WikiLocation
) -> None:
    _install_module(
        monkeypatch, "otterwiki_host", which=lambda request: answer if request.host == "a.example" else None
    )
    resolver = WikiResolver("otterwiki_host:which")
    with flask.Flask("wiki").test_request_context("/", base_url="http://a.example"):
        assert resolver.resolve_request() == place
    with flask.Flask("wiki").test_request_context("/", base_url="http://b.example"), pytest.raises(WikiNotFound):
        resolver.resolve_request()


@pytest.mark.parametrize("named", ["nowhere_at_all:which", "json:nothing", "json", ":", "json:__name__"])
def test_a_resolver_that_cannot_be_imported_is_an_invalid_setting(named: str) -> None:
    with flask.Flask("wiki").test_request_context("/"), pytest.raises(InvalidSetting, match="RESOLVER"):
        WikiResolver(named).resolve_request()


def test_an_invalid_resolver_result_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (7, ("a", "b", "c"), ("", ""), ("a", None), object()):
        _install_module(monkeypatch, "otterwiki_host", which=lambda _, answer=answer: answer)
        with flask.Flask("wiki").test_request_context("/"), pytest.raises((WikiNotFound, InvalidSetting)):
            WikiResolver("otterwiki_host:which").resolve_request()
