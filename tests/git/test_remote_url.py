"""Which addresses a wiki's source may have, and which hosts it may connect to."""

import ipaddress
import socket
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler, run_http_server
from wikiholt.errors import InvalidSource, SourceCorrupt, SourceMissing
from wikiholt.git import remote_url
from wikiholt.git.remote import FetchLimits, RemoteSource
from wikiholt.git.remote_url import RemoteUrl, is_public_address, is_remote, parse_remote_url, redact_url

ALL_SCHEMES = ("https", "http", "ssh", "git", "file")


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("https://git.example/team/wiki.git", RemoteUrl("https", "git.example", 443, "/team/wiki.git")),
        ("https://Git.Example:8443/w", RemoteUrl("https", "git.example", 8443, "/w")),
        ("https://bob:p%40ss@git.example/w", RemoteUrl("https", "git.example", 443, "/w", "bob", "p@ss")),
        ("ssh://git@git.example:2222/w.git", RemoteUrl("ssh", "git.example", 2222, "/w.git", "git")),
        ("git@git.example:team/w.git", RemoteUrl("ssh", "git.example", 22, "team/w.git", "git")),
        ("http://[2001:db8::1]:80/w", RemoteUrl("http", "[2001:db8::1]", 80, "/w")),
        ("file:///srv/wiki", RemoteUrl("file", "", 0, "/srv/wiki")),
    ],
)
def test_addresses_are_parsed(source: str, address: RemoteUrl) -> None:
    assert is_remote(source)
    assert parse_remote_url(source, ALL_SCHEMES) == address


def test_an_address_in_the_form_of_scp_stays_relative_to_the_home() -> None:
    assert parse_remote_url("git@git.example:team/w.git", ALL_SCHEMES).format_url() == "git@git.example:team/w.git"
    assert parse_remote_url("git@git.example:/srv/w.git", ALL_SCHEMES).format_url() == "ssh://git@git.example/srv/w.git"


@pytest.mark.parametrize("source", ["/srv/wiki", "wiki", "./a:b", "C:/wiki", "a b@c", "/x@y:z"])
def test_paths_are_not_addresses(source: str) -> None:
    assert not is_remote(source)
    assert redact_url(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "https://",
        "https:///path",
        "https://host",
        "https://-oProxyCommand=x/w",
        "ssh://-oProxyCommand=x/w",
        "ssh://a@-oProxyCommand=x/w",
        "ssh://-x@host/w",
        "ssh://git:pass@host/w",
        "-oProxyCommand@host:w://",
        "git@host:-x://",
        "https://host:0/w",
        "https://host:65536/w",
        "https://host:x/w",
        "https://ho st/w",
        "https://h\u00f6st/w",
        "https://host/w\n",
        "https://host/\x1b[2J",
        "https://host/w?token=x",
        "https://host/w#x",
        "https://host./w",
        "https://[::1/w",
        "https://[fe80::1%eth0]/w",
        "https://[1:2]/w",
        "https://2130706433/w",
        "https://0x7f000001/w",
        "https://0177.0.0.1/w",
        "https://127.1/w",
        "https://0x7f.1/w",
        "https://1.2.3.4.5/w",
        "https://a@b@c/w",
        "HTTPS://host/w",
        "ext::sh -c id://",
        "ext::sh://x/y",
        "fd::17://",
        "ftp://host/w",
        "rsync://host/w",
        "file://host/w",
        "git://user@host/w",
        "transport::address://x",
    ],
)
def test_an_invalid_repository_address_is_refused(source: str) -> None:
    with pytest.raises(InvalidSource) as caught:
        parse_remote_url(source, ALL_SCHEMES)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("source", ["http://host/w", "file:///etc", "git://host/w"])
def test_an_address_that_the_settings_forbid_is_refused(source: str) -> None:
    with pytest.raises(InvalidSource, match="not allowed") as caught:
        parse_remote_url(source, ("https", "ssh"))
    assert "https, ssh" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("https://bob:secret@host/w", "https://***@host/w"),
        ("https://token@host/w", "https://***@host/w"),
        ("ssh://git@host/w", "ssh://git@host/w"),
        ("ssh://git:secret@host/w", "ssh://***@host/w"),
        ("git@host:w", "git@host:w"),
        ("https://host/w@v", "https://host/w@v"),
    ],
)
def test_addresses_are_shown_without_secrets(source: str, seen: str) -> None:
    assert redact_url(source) == seen


@pytest.mark.parametrize(
    "source", ["https://u:secret@", "ftp://u:secret@h/w", "https://u:secret@h:0/w", "ssh://u:secret@h/w"]
)
def test_errors_about_an_address_name_no_secret(source: str) -> None:
    with pytest.raises(InvalidSource) as caught:
        parse_remote_url(source, ALL_SCHEMES)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


PRIVATE_ADDRESSES = [
    *("127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("192.0.0.8", "198.18.0.1", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1"),
    *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::", "::7f00:1"),
    *("2001:0:0:0:0:0:80ff:fffe", "fe80::1%1"),
]


@pytest.mark.parametrize("number", PRIVATE_ADDRESSES)
def test_private_addresses_are_recognized(number: str) -> None:
    assert not is_public_address(ipaddress.ip_address(number))


@pytest.mark.parametrize("number", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "2a00:1450::1"])
def test_public_addresses_are_recognized(number: str) -> None:
    assert is_public_address(ipaddress.ip_address(number))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0", "[fe80::1]"],
)
@pytest.mark.parametrize("scheme", ["https", "http", "ssh", "git"])
def test_no_source_connects_to_this_host_or_a_private_network(tmp_path: Path, host: str, scheme: str) -> None:
    remote = RemoteSource(f"{scheme}://{host}/wiki", tmp_path / "place", FetchLimits(schemes=ALL_SCHEMES))
    for act in (remote.check_readable, remote.fetch):
        with pytest.raises(InvalidSource, match="private network"):
            act()
    assert not (tmp_path / "place" / "mirror.git").exists()


def test_scp_addresses_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match="private network"):
        RemoteSource("git@localhost:wiki", tmp_path, FetchLimits()).check_readable()


def test_a_local_server_gets_no_request_from_a_forbidden_source(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": "a"})
    with run_http_server(make_git_handler(tmp_path)) as server:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(InvalidSource):
                RemoteSource(
                    server.get_url("wiki/.git", host), tmp_path / "place", FetchLimits(schemes=ALL_SCHEMES)
                ).fetch()
        assert server.requested_paths == []


def test_one_private_address_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(0, 0, 0, "", ("93.184.215.14", 443)), (0, 0, 0, "", ("10.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(InvalidSource):
        remote_url.resolve_host(RemoteUrl("https", "git.example", 443, "/w"), allow_private=False)


def test_a_host_name_that_does_not_resolve_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="is unknown"):
        RemoteSource("https://nowhere.invalid/w", tmp_path, FetchLimits()).check_readable()


def test_git_connects_to_the_checked_address_without_another_lookup(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the check can resolve the name: if git reaches the server, it used the checked address."""
    head = repository.commit({"a.md": "a"})
    real = socket.getaddrinfo

    def answer(host: str, *rest: object, **named: object) -> object:
        return real("127.0.0.1" if host == "rebind.invalid" else host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with run_http_server(make_git_handler(tmp_path)) as server:
        remote = RemoteSource(
            server.get_url("wiki/.git", "Rebind.invalid"),
            tmp_path / "place",
            FetchLimits(schemes=ALL_SCHEMES, allow_private=True),
        )
        remote.fetch()
    assert remote.get_head() == head


def test_a_name_that_resolves_to_another_host_after_the_check_is_not_used(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check resolves one address; the system resolves the same name to the server."""
    repository.commit({"a.md": "a"})
    checked = [(0, 0, 0, "", ("127.0.0.2", 80))]  # no server listens there
    monkeypatch.setattr(remote_url, "is_public_address", lambda _: True)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: checked)
    with run_http_server(make_git_handler(tmp_path)) as server:
        source = server.get_url("wiki/.git", "localhost")
        with pytest.raises(SourceCorrupt):
            RemoteSource(source, tmp_path / "place", FetchLimits(schemes=ALL_SCHEMES, timeout_s=2)).fetch()
        assert server.requested_paths == []


def test_file_is_read_only_where_it_is_allowed(repository: Repository, tmp_path: Path) -> None:
    head = repository.commit({"a.md": "a"})
    remote = RemoteSource(f"file://{repository.path}", tmp_path / "place", FetchLimits(schemes=("file",)))
    remote.fetch()
    assert remote.get_head() == head
