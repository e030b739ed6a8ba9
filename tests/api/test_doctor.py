"""What `doctor` finds besides broken indexes: old backups, readable files, expired keys."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki
from wikiholt.api.doctor import CheckResult, check_sign_in, run_checks
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import Scope
from wikiholt.errors import NoPages, NothingIndexed
from wikiholt.interfaces.cli.output import TerminalStyle, format_status

DAY_S = 86_400.0


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    wiki = DamagedWiki(tmp_path, pages=3)
    yield wiki
    wiki.close()


def get_failures(wiki: DamagedWiki, interval: float = DAY_S) -> list[CheckResult]:
    return [check for check in run_checks(wiki.service, wiki.place / "data", interval) if not check.ok]


def get_registry_file(wiki: DamagedWiki) -> Path:
    return wiki.place / "data" / "registry.sqlite"


def test_a_wiki_without_an_indexed_page_is_a_fault(wiki: DamagedWiki) -> None:
    wiki.repository.commit({**{f"page-{n}.md": None for n in range(3)}, "photo.png": "no page"})
    with pytest.raises(NoPages):
        wiki.handle.sync()
    checks = [check for check in run_checks(wiki.service, wiki.place / "data", DAY_S) if check.subject == "wiki notes"]
    assert [(check.ok, check.detail) for check in checks] == [(False, "this wiki has no indexed page")]
    status = wiki.handle.get_status()
    assert isinstance(status.error, NothingIndexed)
    assert "this wiki has no indexed page" in "\n".join(format_status(status, TerminalStyle(use_color=False)))


def test_a_link_at_the_root_is_no_fault_and_one_elsewhere_is(wiki: DamagedWiki) -> None:
    (wiki.repository.path / "CONTRIBUTING.md").symlink_to("page-0.md")
    wiki.repository.commit({})
    wiki.handle.sync()
    assert get_failures(wiki) == []
    assert [problem.file for problem in wiki.handle.get_status().problems] == ["CONTRIBUTING.md"]
    (wiki.repository.path / "deep").mkdir()
    (wiki.repository.path / "deep" / "Link.md").symlink_to("../page-0.md")
    wiki.repository.commit({})
    wiki.handle.sync()
    (fault,) = get_failures(wiki)
    assert fault.detail.startswith("1 pages could not be indexed; the first: deep/Link.md")


def test_registry_changes_without_a_backup_are_reported_after_an_hour(wiki: DamagedWiki) -> None:
    wiki.service.registry.backups.create()
    wiki.service.registry.keys.create(None, Scope.ADMIN)
    assert get_failures(wiki) == [], "a backup is made within minutes"
    an_age_ago = time.time() - 2 * 3600
    os.utime(get_registry_file(wiki), (an_age_ago, an_age_ago))
    (fault,) = get_failures(wiki)
    assert (fault.subject, "wikiholt backup --registry" in fault.advice) == ("backups", True)
    wiki.service.registry.backups.create()
    assert get_failures(wiki) == []


def test_a_registry_readable_by_others_is_reported_and_restricted_by_the_next_change(wiki: DamagedWiki) -> None:
    for file in get_registry_file(wiki).parent.glob("registry.sqlite*"):
        file.chmod(0o644)
    (fault,) = get_failures(wiki)
    assert (fault.subject, "chmod 600" in fault.advice) == ("registry", True)
    wiki.service.list_wikis()
    assert get_registry_file(wiki).stat().st_mode & 0o777 == 0o644, "reading changes nothing"
    wiki.service.registry.keys.create(None, Scope.ADMIN)
    assert {file.stat().st_mode & 0o777 for file in get_registry_file(wiki).parent.glob("registry.sqlite*")} == {0o600}
    assert get_failures(wiki) == []


def test_a_world_writable_data_directory_is_reported(wiki: DamagedWiki) -> None:
    (wiki.place / "data").chmod(0o777)
    (fault,) = get_failures(wiki)
    assert (fault.subject, "chmod o-w" in fault.advice) == ("data directory", True)


def test_expired_keys_are_reported_by_name(wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = wiki.service.registry.keys
    soon = datetime.now(UTC) + timedelta(hours=1)
    names = [keys.create(wiki.handle.wiki.id, Scope.READ, f"robot {n}", soon)[0].id for n in range(7)]
    keys.create(wiki.handle.wiki.id, Scope.READ)
    assert get_failures(wiki) == []

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(hours=2)

    monkeypatch.setattr("wikiholt.api.doctor.datetime", Later)
    (fault,) = [check for check in get_failures(wiki) if check.subject == "keys"]
    assert f"{names[0]} (robot 0)" in fault.detail
    assert fault.detail.endswith("and 2 more")
    assert "key revoke" in fault.advice


@pytest.mark.parametrize(
    ("settings", "details"),
    [
        ({}, []),
        ({"people.remember_days": 30}, ["remembered keys"]),
        (
            {"people.proxy_user_header": "Remote-User"},
            ["serve.trusted_proxies is empty", "people.groups is empty"],
        ),
        (
            {
                "people.proxy_user_header": "Remote-User",
                "serve.trusted_proxies": ["*"],
                "people.groups": ["staff=notes:read", "staff=nowhere:read"],
            },
            ["contains *", "people.proxy_groups_header is empty", "the wiki nowhere, which does not exist"],
        ),
        ({"people.oidc_client_id": "x"}, ["people.oidc_issuer is empty"]),
        ({"people.groups": ["staff=*:read"]}, ["no effect"]),
        (
            {"people.oidc_issuer": "https://id.example.org", "people.groups": ["staff=*:read"]},
            ["people.oidc_client_id is empty"],
        ),
        (
            {
                "people.oidc_issuer": "https://id.example.org",
                "people.oidc_client_id": "x",
                "people.groups": ["staff=notes:read"],
            },
            ["OpenID Connect"],
        ),
    ],
)
def test_incomplete_sign_in_settings_are_reported(
    wiki: DamagedWiki, settings: dict[str, object], details: list[str]
) -> None:
    checks = list(check_sign_in(wiki.service, load_settings(wiki.place / "data", overrides=settings)))
    assert len(checks) == len(details)
    for check, detail in zip(checks, details, strict=True):
        assert detail in check.detail
        assert check.ok or check.advice
