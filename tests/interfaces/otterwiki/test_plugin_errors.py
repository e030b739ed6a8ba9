"""An error in the plugin never breaks a save, a page view or the start of the wiki; the log says why."""

import ast
import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any, cast

import pytest
from flask import Flask
from jinja2 import Environment, FileSystemLoader
from otterwiki.plugins import OtterWikiPluginSpec

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import open_service
from wikiholt.errors import IndexCorrupt, IndexMissing, IndexRepairing, InvalidSetting, NothingIndexed
from wikiholt.interfaces.otterwiki import plugin, plugin_config
from wikiholt.interfaces.otterwiki.plugin import OtterwikiPlugin
from wikiholt.interfaces.otterwiki.plugin_runtime import PluginRuntime
from wikiholt.interfaces.otterwiki.search_pages import build_search_content
from wikiholt.interfaces.otterwiki.wiki_resolver import WikiLocation, WikiRegistrar

_HOOKS = [name for name in vars(OtterwikiPlugin) if getattr(vars(OtterwikiPlugin)[name], "otterwiki_impl", None)]


def test_every_hook_matches_the_plugin_specification_of_otterwiki() -> None:
    assert {"setup", "repository_changed", "page_saved", "page_deleted", "page_renamed"} <= set(_HOOKS)
    for name in _HOOKS:
        expected = inspect.signature(getattr(OtterWikiPluginSpec, name)).parameters
        parameters = inspect.signature(getattr(OtterwikiPlugin, name)).parameters.values()
        named = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
        assert named <= set(expected), f"{name} may take fewer arguments, but no others"


def test_the_plugin_imports_nothing_heavy_before_setup() -> None:
    names: set[str] = set()
    for file in (Path(plugin.__file__), Path(plugin.__file__).with_name("__init__.py")):
        tree = ast.parse(file.read_text())
        names |= {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert names == {
        *("collections.abc", "contextlib", "functools", "importlib", "logging", "os", "re", "sys", "typing"),
        *("otterwiki.plugins", "otterwiki.version", "wikiholt.interfaces.otterwiki"),
    }


@pytest.mark.parametrize("version", ["2.17.3", "2.25.2", "1.9"])
def test_an_older_otterwiki_runs_without_the_plugin_and_the_log_says_what_to_do(
    version: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_otterwiki_version", version)
    monkeypatch.setattr("wikiholt.interfaces.otterwiki._logged_reasons", set())
    tried = OtterwikiPlugin()
    tried.setup(Flask("wiki"), None, None)
    assert tried.runtime is None
    assert f"Otterwiki {version} is too old, 2.26 is needed" in caplog.text
    assert "pip install --upgrade otterwiki" in caplog.text
    tried.page_saved("home", "text", None, "message")
    assert tried.template_html_head_inject(None) is None


def test_a_worker_loads_mcp_only_for_the_messages_of_agents(tmp_path: Path) -> None:
    code = (
        "import sys; from wikiholt.api.bootstrap import open_application;"
        "from wikiholt.api.settings.settings_loader import load_settings;"
        "from wikiholt.interfaces.http.app import create_app, create_host_app;"
        "application = open_application(load_settings(environ={'WIKIHOLT_DATA': sys.argv[1]}));"
        "create_host_app(application), create_app(application);"
        "print([name for name in ('mcp', 'onnxruntime', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("version", ["2.26.0", "2.26.1", "2.100.0", "3.0", "main"])
def test_newer_and_unnumbered_versions_of_otterwiki_are_accepted(version: str) -> None:
    plugin.check_otterwiki_version(version)


class _WorstError(BaseException):
    pass


class _BrokenRuntime:
    def __getattr__(self, name: str) -> Any:
        raise self.error

    def __init__(self, error: BaseException) -> None:
        self.error = error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (IndexMissing("no index"), "first-index"),
        (NothingIndexed("no page"), "first-index"),
        (IndexRepairing("damaged"), "problem"),
        (IndexCorrupt("damaged"), "problem"),
    ],
)
def test_the_page_shows_the_first_indexing_as_news_and_not_as_an_error(error: Exception, kind: str) -> None:
    content = build_search_content(cast(PluginRuntime, _BrokenRuntime(error)), {"q": "otters"})
    templates = Environment(loader=FileSystemLoader(Path(plugin.__file__).parent / "templates"), autoescape=True)
    templates.filters |= dict.fromkeys(("pluralize", "wikiholt_ago", "wikiholt_matches", "wikiholt_snippet"), str)
    html = cast(Any, templates.get_template("wikiholt/parts.html").module).state(content, {})
    assert re.findall('class="message ([a-z-]*)"', html) == [kind]


@pytest.mark.parametrize("error", [InvalidSetting("no such place", hint="x"), RuntimeError("odd place")])
def test_a_search_that_fails_logs_each_reason_once(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.interfaces.otterwiki._logged_reasons", set())
    for _ in range(3):
        content = build_search_content(cast(PluginRuntime, _BrokenRuntime(error)), {"q": "otters"})
        assert "not set up" in content.problem
        assert "place" not in content.problem + content.hint
    assert [record.getMessage().startswith("Wikiholt: search failed: ") for record in caplog.records] == [True]


@pytest.mark.parametrize("hook", [name for name in _HOOKS if name != "setup"])
@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), MemoryError(), _WorstError("worst"), InvalidSetting("no", hint="x")]
)
def test_no_hook_raises_and_every_reason_is_logged_once(
    hook: str, error: BaseException, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.interfaces.otterwiki._logged_reasons", set())
    broken = OtterwikiPlugin()
    broken.runtime = broken._injects = _BrokenRuntime(error)
    arguments = list(inspect.signature(getattr(OtterwikiPlugin, hook)).parameters)[1:]
    with caplog.at_level(logging.ERROR, logger="wikiholt"):
        for _ in range(3):
            assert getattr(broken, hook)(*("x" for _ in arguments)) is None
    assert len(caplog.records) == 1
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_exceptions_that_stop_the_process_are_not_caught(error: BaseException) -> None:
    leaving = OtterwikiPlugin()
    leaving.runtime = _BrokenRuntime(error)
    with pytest.raises(type(error)):
        leaving.page_deleted("x", "x", "x")


def test_hooks_before_setup_do_nothing() -> None:
    fresh = OtterwikiPlugin()
    assert fresh.repository_changed(["home.md"]) is None
    assert fresh.template_html_head_inject(None) is None


def test_after_a_failed_setup_hooks_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    fresh = OtterwikiPlugin()
    fresh.setup(app=None, db=None, storage=None)
    assert "setup" in caplog.text
    assert fresh.page_saved("x", "x", "x", "x") is None


def test_settings_come_from_the_environment_or_from_otterwiki() -> None:
    otterwiki_settings = {
        "REPOSITORY": "/srv/wiki/repository",
        "WIKIHOLT_SYNC_INTERVAL": 7,
        "WIKIHOLT_SEARCH_STALE_CHECK": False,
    }
    listed = {"WIKIHOLT_OTTERWIKI_HIDE": ["Drafts/", "*/private"], "WIKIHOLT_THREADS": 3, "WIKIHOLT_MODEL": None}
    read = plugin_config.PluginConfig.from_environment(
        otterwiki_settings | listed, {"WIKIHOLT_THREADS": "2", "WIKIHOLT_OTTERWIKI_DROPDOWN": "off"}
    )
    settings = read.load_settings()
    assert (settings.sync_interval, settings.threads, settings.search_stale_check) == (7.0, 2, False)
    assert settings.data == Path("/srv/wiki/wikiholt")
    assert (read.hide, read.dropdown, read.dialect) == ("Drafts/,*/private", False, "otterwiki")


@pytest.mark.parametrize(
    ("style", "retain_case", "dialect"),
    [
        ("", False, None),
        ("TITLELINK", False, None),
        ("", True, "otterwiki-case"),
        ("LINK_TITLE", False, "otterwiki-linktitle"),
        ("PageNameTitle ", True, "otterwiki-linktitle-case"),
    ],
)
def test_otterwikis_settings_decide_the_dialect_of_links(
    tmp_path: Path, style: str, retain_case: bool, dialect: str | None
) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"home.md": "[[a|b]]"})
    location = WikiLocation(str(repository.path.resolve()))
    config = plugin_config.PluginConfig.from_environment(
        {"WIKILINK_STYLE": style, "RETAIN_PAGE_NAME_CASE": retain_case}, {}
    )
    service = open_service(tmp_path / "data")
    try:
        registered = WikiRegistrar(service, config.hide, config.dialect).get_or_register(location)
        assert registered.settings.get("dialect") == dialect
        back = WikiRegistrar(service).get_or_register(location)
        assert back.settings.get("dialect") == (dialect and "otterwiki")
        service.configure(registered.slug, {"dialect": "obsidian"})
        kept = WikiRegistrar(service, config.hide, config.dialect).get_or_register(location)
        assert kept.settings["dialect"] == "obsidian"
    finally:
        service.close()


@pytest.mark.parametrize("name", ["WIKIHOLT_OTTERWIKI_HIDDEN", "WIKIHOLT_SYNC_INTERVALL"])
def test_an_unknown_setting_is_named(name: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        plugin_config.PluginConfig.from_environment({"REPOSITORY": "/srv/r"}, {name: "1"}).load_settings()


def test_variables_of_the_other_plugin_are_used_or_reported_with_advice() -> None:
    environ = {"CHROMA_SYNC_INTERVAL": "30", "CHROMADB_PATH": "/c", "VECTOR_BACKEND": "chroma", "FAISS_INDEX_DIR": "/f"}
    environ |= {"EMBEDDING_MODEL": "bedrock", "SENTENCE_TRANSFORMER_MODEL": "another/one", "OTTERWIKI_API_KEY": "k"}
    assert (
        plugin_config.PluginConfig.from_environment({"REPOSITORY": "/srv/r"}, environ).load_settings().sync_interval
        == 30
    )
    messages = plugin_config.log_legacy_advice(environ)
    unused = set(environ) - {"CHROMA_SYNC_INTERVAL", "OTTERWIKI_API_KEY"}
    assert {line.split()[0] for line in messages} == unused
    assert all("WIKIHOLT_" in line for line in messages)
    same = {"EMBEDDING_MODEL": "local", "SENTENCE_TRANSFORMER_MODEL": "all-MiniLM-L6-v2"}
    assert plugin_config.log_legacy_advice(same) == []
    assert plugin_config.log_legacy_advice({"CHROMA_SYNC_INTERVAL": "soon"})
    (line,) = plugin_config.log_legacy_advice({"VECTOR_BACKEND": "faiss"})
    assert "WIKIHOLT_VECTORS=faiss" in line


def test_the_chroma_server_of_the_other_plugin_is_used() -> None:
    environ = {"VECTOR_BACKEND": "chroma", "CHROMADB_HOST": "db", "CHROMADB_PORT": "8004", "CHROMADB_MODE": "http"}
    settings = plugin_config.PluginConfig.from_environment({"REPOSITORY": "/srv/r"}, environ).load_settings()
    assert (settings.vectors, settings.chroma_url) == ("chroma", "http://db:8004")
    messages = plugin_config.log_legacy_advice(environ)
    assert [line.split()[0] for line in messages] == ["CHROMADB_MODE", "VECTOR_BACKEND=chroma"]
    assert messages[1].endswith("WIKIHOLT_CHROMA_URL=http://db:8004.")
    for own in ({"WIKIHOLT_VECTORS": "exact"}, {"CHROMADB_HOST": "a b"}, {"CHROMADB_PORT": "http"}):
        changed = environ | own
        settings = plugin_config.PluginConfig.from_environment({"REPOSITORY": "/srv/r"}, changed).load_settings()
        assert settings.chroma_url == ""
        assert len(plugin_config.log_legacy_advice(changed)) == 4, "each variable is named as not used"


def test_a_conflicting_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otterwiki_semantic_search", ModuleType("otterwiki_semantic_search"))
    (line,) = plugin_config.log_legacy_advice({})
    assert line.startswith("otterwiki-semantic-search is installed too")


@pytest.fixture(scope="module")
def broken_wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterwikiServer]:
    """A wiki whose data directory is unusable."""
    place = tmp_path_factory.mktemp("stranded")
    (place / "taken").write_text("this is a file")
    with OtterwikiServer.start(place, data=place / "taken") as running:
        yield running


@pytest.mark.model
def test_a_wiki_with_an_unusable_data_directory_logs_why_and_recovers_once_it_is_repaired(
    broken_wiki: OtterwikiServer,
) -> None:
    assert broken_wiki.save_page("Shore", "# Shore\n\nMarooned.\n").status_code == 302
    assert "Marooned" in broken_wiki.client.get("/Shore").text
    wait_until(lambda: "the index is not updated" in broken_wiki.read_log(), broken_wiki.read_log)
    assert "Traceback" not in broken_wiki.read_log()
    broken_wiki.data.unlink()
    broken_wiki.save_page("Rescue", "# Rescue\n\nA ship with sails.\n")
    broken_wiki.wait_until_found("sails", "rescue")
    broken_wiki.wait_until_equal()


def test_a_wiki_boots_views_and_saves_when_imports_of_the_plugin_fail(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = sys.modules['fastapi'] = None\n")
    environ = {"PYTHONPATH": str(tmp_path), "WIKIHOLT_NO_SUCH": "1"}
    with OtterwikiServer.start(tmp_path / "wiki", environ=environ) as otter:
        assert otter.save_page("Page", "# Page\n\nStill here.\n").status_code == 302
        assert "Still here" in otter.client.get("/Page").text
        assert "Wikiholt: setup" in otter.read_log()


@pytest.mark.parametrize(("replies", "limit_s"), [([True, True, False], 3600.0), ([True] * 10_000, 0.2)])
def test_a_sync_waits_until_saves_have_ended_but_not_for_ever(
    replies: list[bool], limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wikiholt.interfaces.otterwiki import plugin_runtime

    monkeypatch.setattr(plugin_runtime, "_MAX_DELAY_S", limit_s)
    called, left = Event(), list(replies)
    debouncer = plugin_runtime.Debouncer(lambda _: called.set(), lambda: left.pop(0))
    debouncer.notify([WikiLocation("/srv/wiki")])
    assert called.wait(TIMEOUT_S)
    debouncer.stop(TIMEOUT_S)
    assert bool(left) == all(replies)


def test_a_row_of_saves_ends_when_no_save_has_run_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    from wikiholt.interfaces.otterwiki import plugin_runtime

    monkeypatch.setattr(plugin_runtime, "_QUIET_S", 3600.0)
    app, writes = Flask("saves"), plugin_runtime.RunningWrites()
    writes.register(app)
    seen: list[bool] = []
    app.add_url_rule("/", view_func=lambda: str(seen.append(writes.is_busy())), methods=["GET", "POST"])
    client = app.test_client()
    client.get("/")
    assert (seen, writes.is_busy()) == ([False], False), "a view is no save"
    client.post("/")
    assert (seen[1:], writes.is_busy()) == ([True], True), "the next save may follow"
    monkeypatch.setattr(plugin_runtime, "_QUIET_S", 0.0)
    assert not writes.is_busy()
