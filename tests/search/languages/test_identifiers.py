"""Identifiers: a page that contains the typed identifier comes before pages that contain its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.languages.language_fixtures import LanguageFixture
from wikiholt.text.analysis import find_identifiers

LANGUAGE = "english"
EXACT = {
    "underscore": ("kubectl_apply", "Call kubectl_apply from the script, and apply it again after a change."),
    "option": ("--no-rerank", "Pass --no-rerank to see the list as it was."),
    "hyphen": ("cert-manager", "The cert-manager runs in a namespace of its own."),
    "camel": ("getUserName", "The method getUserName returns what was typed."),
    "dotted": ("user.email", "Set user.email before the first commit."),
    "plusplus": ("C++", "The parser is written in C++ and has no tests."),
    "sharp": ("C#", "The old client was written in C# by a student."),
    "dotfile": (".env", "Secrets belong into .env and never into git."),
    "path": ("/etc/hosts", "Add the name to /etc/hosts on both machines."),
    "version": ("v1.2.3", "The fault was fixed in v1.2.3 of the driver."),
    "address": ("192.168.0.1", "The router answers at 192.168.0.1 in the lab."),
    "hex": ("0x6100", "Error 0x6100 means that the drum is worn out."),
    "number": ("#1234", "This was reported as #1234 by a customer."),
    "ticket": ("TRN-5031", "See TRN-5031 for the story of the outage."),
    "colons": ("std::sort", "We call std::sort on the list before it is written."),
    "slash": ("tcp/ip", "The course on tcp/ip takes two days."),
    "mail": ("jane.doe@example.com", "Write to jane.doe@example.com for a key."),
    "url": (
        "https://docs.example.org/setup/first?x=1",
        "It is described at https://docs.example.org/setup/first in full.",
    ),
    "image": ("nginx:1.25", "The proxy is nginx:1.25 until further notice."),
    "windows": (r"C:\Windows\System32", r"The file is in C:\Windows\System32 as always."),
}
PARTS = (
    "kubectl and apply are words, and so is rerank; there is no such thing here. A cert for the manager. Get the user a"
    " name. The user wrote an email. The letter C. The env of a process: etc, and hosts. V1 of 2 and 3, 192 and 168,"
    " 0 and 1. 6100 is a number, as is 5031 by TRN. The std is to sort. An ip over tcp. Jane Doe has an example at"
    " example, com. Docs for the setup come first. Nginx 1 and 25. Windows has a system32 at C."
)
PAGES = {name: f"# {name.title()} page\n\n{text}" for name, (_, text) in EXACT.items()} | {
    f"parts{at}": f"# Notes {at}\n\n{PARTS}" for at in range(3)
}


@pytest.mark.parametrize("name", EXACT)
def test_the_page_with_the_identifier_comes_first(language_wiki: LanguageFixture, name: str) -> None:
    typed = EXACT[name][0]
    assert language_wiki.find_paths(typed)[0] == name
    assert language_wiki.find_paths(f"{typed} ")[0] == name
    assert language_wiki.get_marked_words(typed, name)


@pytest.mark.parametrize(
    "typed", ["etc/hosts", "KUBECTL_APPLY", "no-rerank", "1234", "Std::Sort", "docs.example.org/setup/first"]
)
def test_small_differences_in_spelling_are_accepted(language_wiki: LanguageFixture, typed: str) -> None:
    assert not language_wiki.find_paths(typed)[0].startswith("parts")


def test_parts_find_the_identifier(language_wiki: LanguageFixture) -> None:
    for typed, name in (("reranking", "option"), ("user name", "camel"), ("hosts", "path"), ("jane", "mail")):
        assert name in language_wiki.find_paths(typed), typed


def test_an_excluded_identifier_is_not_searched(language_wiki: LanguageFixture) -> None:
    assert "path" not in language_wiki.find_paths("hosts -/etc/hosts -etc")
    assert "path" not in language_wiki.find_paths("machines -etc")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /etc/hosts.", ["etc/hosts"]),
        ("-I/usr/include, (std::sort)", ["i/usr/include", "std::sort"]),
        ("a.b.c:1 ../up/x", ["a.b.c:1", "up/x"]),
        (".env /app/.env x.env ...env", ["app/.env", ".env", ".env"]),
        ("note: this; a / b; 10:30:", ["10:30"]),
        ("https://www.example.org/a/b?c=d", ["example.org/a/b"]),
        ("", []),
    ],
)
def test_identifiers_joined_by_punctuation(text: str, found: list[str]) -> None:
    assert find_identifiers(text) == found


@pytest.mark.parametrize(
    "text", ["a" * 300_000 + ":", "a." * 200_000 + "/", "a/" * 200_000, "." * 300_000 + ":", "-a:" * 99_999]
)
def test_a_page_of_punctuation_is_read_quickly(text: str) -> None:
    assert all(len(identifier) <= 64 for identifier in find_identifiers(text))


@given(st.text(st.sampled_from("ab1._-/\\:@# \n東é"), max_size=60))
def test_identifiers_contain_no_space_and_are_stable(text: str) -> None:
    for identifier in find_identifiers(text):
        assert len(identifier.split()) == 1
        assert identifier in find_identifiers(identifier)
