import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT
from wikiholt.api.settings import settings_loader
from wikiholt.api.settings.definitions import SETTINGS, WIKI_SETTINGS, Settings, WikiSettings
from wikiholt.api.settings.manual_page import render_settings_page
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting
from wikiholt.models import DEFAULT_MODEL
from wikiholt.search.sort_order import parse_boost_rules

DOCS = ROOT / "docs" / "settings.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_settings(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_every_setting_has_a_field_and_every_field_a_setting() -> None:
    assert [field.name for field in dataclasses.fields(Settings)] == [
        setting.attribute for setting in SETTINGS.values()
    ]
    assert [field.name for field in dataclasses.fields(WikiSettings)] == [
        setting.attribute for setting in WIKI_SETTINGS.values()
    ]


def test_variables_are_distinct() -> None:
    assert len({setting.variable for setting in SETTINGS.values()}) == len(SETTINGS)


def test_every_default_is_an_accepted_value() -> None:
    for setting in (*SETTINGS.values(), *WIKI_SETTINGS.values()):
        assert setting.parse(setting.default, "default") == setting.default, setting.name
        assert setting.help.endswith("."), setting.name


def test_the_manual_is_written_from_the_table() -> None:
    assert DOCS.read_text("utf-8") == render_settings_page(), (
        "run `python -m wikiholt.api.settings.manual_page > docs/settings.md`"
    )
    assert all(
        f"`{setting.name}`" in render_settings_page() for setting in (*SETTINGS.values(), *WIKI_SETTINGS.values())
    )


@pytest.mark.usefixtures("here")
def test_without_configuration_the_defaults_apply(user_data: Path) -> None:
    settings = load_settings()
    assert settings.data == user_data / "wikiholt"
    assert (settings.model, settings.chunk_target_tokens, settings.search_stale_check) == (
        "wikiholt-1",
        200,
        True,
    )


def test_loading_touches_nothing(here: Path) -> None:
    load_settings(data=here / "data")
    assert list(here.iterdir()) == []


def test_overrides_take_precedence_over_environment_and_file(here: Path) -> None:
    write_settings(
        here / "wikiholt-data" / "wikiholt.toml", "threads = 1\nlanguage = 'german'\nanchors = 'otterwiki'\nmodel = 'a'"
    )
    environ = {"WIKIHOLT_THREADS": "2", "WIKIHOLT_LANGUAGE": "french"}
    settings = load_settings(environ=environ, overrides={"threads": 3})
    assert (settings.threads, settings.language, settings.anchors, settings.model) == (3, "french", "otterwiki", "a")
    assert settings.precision == load_settings().precision


def test_the_data_directory_comes_from_argument_environment_or_working_directory(here: Path) -> None:
    environ = {"WIKIHOLT_DATA": "from-environment"}
    assert load_settings(environ=environ).data == here / "from-environment"
    assert load_settings(data=here / "x", environ=environ).data == here / "x"
    assert load_settings(overrides={"data": "y"}, environ=environ).data == here / "y"


def test_a_local_data_directory_is_preferred_also_from_below(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "wikiholt-data").mkdir()
    (here / "docs" / "deep").mkdir(parents=True)
    assert load_settings().data == here / "wikiholt-data"
    monkeypatch.chdir(here / "docs" / "deep")
    assert load_settings().data == here / "wikiholt-data"
    (here / "docs" / "wikiholt-data").mkdir()
    assert load_settings().data == here / "docs" / "wikiholt-data"


def test_a_local_data_directory_of_another_user_is_never_used(
    here: Path, user_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "wikiholt-data").mkdir()
    (here / "below").mkdir()
    owner = (here / "wikiholt-data").stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    monkeypatch.setattr(settings_loader, "ROOT_USER_ID", owner + 2)
    with pytest.raises(InvalidSetting, match="belongs to another user") as refused:
        load_settings()
    assert "--data" in refused.value.hint
    assert load_settings(data=here / "wikiholt-data").data == here / "wikiholt-data"
    monkeypatch.chdir(here / "below")
    assert load_settings().data == user_data / "wikiholt"


def test_the_file_in_the_data_directory_is_read(here: Path) -> None:
    write_settings(here / "elsewhere" / "wikiholt.toml", "threads = 7")
    assert load_settings(data=here / "elsewhere").threads == 7
    assert load_settings(environ={"WIKIHOLT_DATA": "elsewhere"}).threads == 7
    assert load_settings().threads == 0


def test_a_named_file_is_read_instead_and_may_name_the_data_directory(here: Path) -> None:
    write_settings(here / "wikiholt-data" / "wikiholt.toml", "threads = 7")
    file = write_settings(here / "etc" / "my.toml", "threads = 5\ndata = '../store'")
    for settings in (load_settings(config=file), load_settings(environ={"WIKIHOLT_CONFIG": str(file)})):
        assert (settings.threads, settings.data) == (5, here / "store")


def test_a_named_file_must_exist(here: Path) -> None:
    with pytest.raises(InvalidSetting, match="There is no settings file"):
        load_settings(config=here / "gone.toml")


@pytest.mark.usefixtures("here")
def test_the_file_in_the_data_directory_cannot_move_it(here: Path) -> None:
    write_settings(here / "wikiholt-data" / "wikiholt.toml", "data = 'other'")
    with pytest.raises(InvalidSetting, match="data cannot be set"):
        load_settings()


def test_toml_tables_and_dotted_names_are_equal(here: Path) -> None:
    tables = write_settings(here / "a.toml", "vectors = 'exact'\n[chunk]\ntarget_tokens = 100\n[faiss]\ncrossover = 5")
    dots = write_settings(here / "b.toml", "chunk.target_tokens = 100\nvectors = 'exact'\nfaiss.crossover = 5")
    assert load_settings(config=tables) == load_settings(config=dots)
    assert load_settings(config=dots).vectors == "exact"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("modle = 'x'", "no setting 'modle' \\(in .*my.toml\\)", "Did you mean model?"),
        ("[chunk]\ntarget = 5", "no setting 'chunk.target'", "Did you mean chunk.target_tokens?"),
        ("[chunks.deep]\nx = 5", "no setting 'chunks.deep.x'", "`wikiholt settings` lists the settings."),
        ("threads = '4'", "must not be quoted", "Write threads = 4."),
        ("threads = true", "must be an integer", "Threads"),
        ("threads = 1.5", "must be an integer", "Threads"),
        ("threads = -1", "between 0 and 1,024", "Threads"),
        ("threads = [1]", "must be an integer", "Threads"),
        ("model = 5", "must be a string", "embedding model"),
        ("model = {name = 'x'}", "must be a string", "embedding model"),
        ("language = 'englisch'", "unknown value", "Did you mean 'english'?"),
        ("vectors = 'FAISS'", "unknown value", "Did you mean 'faiss'?"),
        ("lock.timeout = nan", "between 0 and", "Seconds"),
        ("search.stale_check = 1", "true or false", "search result"),
        ("url = 'https://example.org/'", "must contain {path}", "link"),
        ("url = '{path}{slug}'", "{slug} is not a known placeholder", "link"),
        ("url = 'javascript:{path}'", "http or https", "link"),
        ("embedding.url = 'ftp://host/v1'", "http:// or https://", "/embeddings"),
        ("embedding.url = 'http://a:b@host/v1'", "embedding.key_variable", "/embeddings"),
        ("embedding.url = 'http://host/v1?key=1'", "must not contain", "/embeddings"),
        ("embedding.url = 'http://[host'", "not a URL", "/embeddings"),
        ("device = 'gpu'", "unknown value", "Valid values: auto, cpu, cuda"),
        ("chunk.overlap_tokens = 200", "must be less than", "quarter"),
        ("this is not toml", "cannot be read", "TOML"),
    ],
)
def test_an_invalid_value_in_the_file_is_named(here: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSetting, match=message) as caught:
        load_settings(config=write_settings(here / "my.toml", text))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WIKIHOLT_MODLE": "x"}, "no setting 'WIKIHOLT_MODLE' \\(in the environment\\)"),
        ({"WIKIHOLT_THREADS": "four"}, "threads = 'four' \\(environment variable WIKIHOLT_THREADS\\)"),
        ({"WIKIHOLT_THREADS": "４"}, "an integer"),
        ({"WIKIHOLT_THREADS": "1_000"}, "an integer"),
        ({"WIKIHOLT_SEARCH_STALE_CHECK": "maybe"}, "true or false"),
        ({"WIKIHOLT_LOCK_TIMEOUT": "inf"}, "must be a number"),
        ({"WIKIHOLT_DATA": "~nobody-by-this-name/x"}, "must be a path"),
    ],
)
@pytest.mark.usefixtures("here")
def test_an_invalid_value_in_the_environment_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        load_settings(environ=environ)


@pytest.mark.usefixtures("here")
def test_unknown_arguments_are_named() -> None:
    with pytest.raises(InvalidSetting, match="no setting 'thread'") as caught:
        load_settings(overrides={"thread": 1})
    assert caught.value.hint == "Did you mean threads?"


@pytest.mark.usefixtures("here")
def test_the_hint_knows_a_language_by_its_own_name_and_its_code() -> None:
    names = {"deutsch": "german", "Deutsch": "german", "français": "french", "español": "spanish", "nl": "dutch"}
    for name, language in names.items():
        for settings in ({"language": name}, {"languages": f"english, {name}"}):
            with pytest.raises(InvalidSetting) as caught:
                WikiSettings.parse(settings)
            assert caught.value.hint.startswith(f"Did you mean '{language}'? "), name


@pytest.mark.usefixtures("here")
def test_the_environment_is_read_as_text() -> None:
    settings = load_settings(
        environ={
            "WIKIHOLT_CHUNK_TARGET_TOKENS": " 300 ",
            "WIKIHOLT_SEARCH_STALE_CHECK": "Off",
            "WIKIHOLT_LOCK_TIMEOUT": "1.5",
            "WIKIHOLT_MODEL": "",
            "PATH": "/bin",
        }
    )
    assert (settings.chunk_target_tokens, settings.search_stale_check, settings.lock_timeout) == (300, False, 1.5)
    assert settings.model == "wikiholt-1"


@pytest.mark.usefixtures("here")
def test_collections_for_other_programs_keep_the_model_that_those_use_unless_another_is_set() -> None:
    assert load_settings(overrides={"chroma.layout": "seed"}).model == "all-MiniLM-L6-v2"
    assert load_settings(environ={"WIKIHOLT_CHROMA_LAYOUT": "seed"}).model == "all-MiniLM-L6-v2"
    chosen = {"chroma.layout": "seed", "model": "bge-small-en-v1.5"}
    assert load_settings(overrides=chosen).model == "bge-small-en-v1.5"
    assert load_settings(overrides={"chroma.layout": "id"}).model == DEFAULT_MODEL


@pytest.mark.usefixtures("here")
def test_variables_of_container_platforms_are_no_settings() -> None:
    announced = {
        "WIKIHOLT_SERVICE_HOST": "10.0.0.1",
        "WIKIHOLT_SERVICE_PORT_HTTP": "80",
        "WIKIHOLT_PORT": "tcp://10.0.0.1:80",
        "WIKIHOLT_PORT_80_TCP_ADDR": "10.0.0.1",
        "WIKIHOLT_OTTERWIKI_HIDE": "Drafts/",
    }
    assert load_settings(environ=announced) == load_settings()


@given(st.dictionaries(st.sampled_from([setting.variable for setting in SETTINGS.values()]), st.text(max_size=20)))
def test_any_text_is_accepted_or_rejected_by_name(environ: dict[str, str]) -> None:
    try:
        settings = load_settings(data=Path("nowhere at all"), environ=environ)
    except InvalidSetting as refusal:
        hint = refusal.hint
    else:
        hint = "taken" if settings.chunk_overlap_tokens < settings.chunk_target_tokens else ""
    assert hint


def test_wiki_settings_are_parsed() -> None:
    settings = WikiSettings.parse(
        {"subdirectory": "docs", "ignore": "drafts/**, *.tmp.md\n/private", "language": "german"}
    )
    assert settings == WikiSettings("docs", ignore=("drafts/**", "*.tmp.md", "/private"), language="german")
    assert WikiSettings.parse({}) == WikiSettings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"langauge": "german"}, "no setting 'langauge'"),
        ({"language": "klingon"}, "unknown value"),
        ({"anchors": "gitlab"}, "unknown value"),
        ({"dialect": "Obsidain"}, "unknown value"),
        ({"url": "https://example.org"}, "must contain {path}"),
        ({"model": "x"}, "no setting 'model'"),
    ],
)
def test_invalid_wiki_settings_are_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        WikiSettings.parse(settings)


def test_an_unknown_dialect_suggests_a_known_one_and_lists_all() -> None:
    with pytest.raises(InvalidSetting) as caught:
        WikiSettings.parse({"dialect": "Obsidain"})
    assert caught.value.hint.startswith(
        "Did you mean 'obsidian'? Valid values: auto, gfm, obsidian, gollum, otterwiki,"
    )


@pytest.mark.parametrize("address", ["postgresql://a:hush@db/wikis", "postgres:///wikis?host=/run/postgresql"])
def test_a_database_address_is_accepted_and_never_shown(address: str) -> None:
    settings = load_settings(overrides={"store": address})
    assert settings.store == address
    assert address not in repr(settings)


@pytest.mark.parametrize("address", ["mysql://a:hush@db/x", "hush", "postgresql:", "postgresql://[hush/x", "://hush"])
def test_an_invalid_database_address_is_rejected_without_being_repeated(address: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^store = … ") as refused:
        load_settings(overrides={"store": address})
    assert "hush" not in refused.value.message + refused.value.hint


def test_the_boost_rules_of_a_wiki_are_checked() -> None:
    settings = WikiSettings.parse({"boost": "/runbooks=2, /archive=0.5"})
    assert [rule.factor for rule in parse_boost_rules(settings.boost)] == [2.0, 0.5]
    with pytest.raises(InvalidSetting, match="write PATTERN=FACTOR with a factor from"):
        WikiSettings.parse({"boost": "/runbooks=20"})
