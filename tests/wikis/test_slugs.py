"""Valid slugs, and proposals for invalid ones."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.domain.slugs import RESERVED_SLUGS, propose_slug, validate_slug
from wikiholt.errors import InvalidSlug


@pytest.mark.parametrize("slug", ["a", "7", "garden", "team-runbook", "a--b", "x" * 63, "2024"])
def test_good_slugs_pass_as_they_are(slug: str) -> None:
    assert validate_slug(slug) == slug


@pytest.mark.parametrize(
    ("text", "reason", "proposal"),
    [
        ("", "empty", "my-wiki"),
        ("Garden", "capital letter G", "garden"),
        ("my wiki", "space", "my-wiki"),
        ("../etc/passwd", "as paths do", "etc-passwd"),
        ("a/b", "as paths do", "a-b"),
        ("a.b", "as paths do", "a-b"),
        ("a\0b", "U\\+0000", "a-b"),
        ("garden\n", "U\\+000A", "garden"),
        ("gаrden", "cyrillic small letter a", "grden"),
        ("Ｇarden", "fullwidth latin", "garden"),
        ("gärten", "latin small letter a with diaeresis", "garten"),
        ("straße", "latin small letter sharp s", "strasse"),
        ("日本", "cjk", "my-wiki"),
        ("-garden", "hyphen", "garden"),
        ("garden-", "hyphen", "garden"),
        ("---", "hyphen", "my-wiki"),
        ("x" * 64, "64 characters", "x" * 63),
        ("api", "reserved", "api-pages"),
        ("w", "reserved", "w-pages"),
        ("xn--80ak6aa92e", "other letters", "xn-80ak6aa92e"),
        ("my_wiki", "low line", "my-wiki"),
        ("١٢", "arabic-indic", "my-wiki"),
    ],
)
def test_bad_slugs_are_refused_with_a_reason_and_a_proposal(text: str, reason: str, proposal: str) -> None:
    with pytest.raises(InvalidSlug, match=reason) as caught:
        validate_slug(text)
    assert caught.value.hint.endswith(f"such as {proposal!r}.")
    assert validate_slug(proposal) == proposal


@pytest.mark.parametrize("name", ["api", "w", "mcp", "admin", "healthz", "readyz", "metrics", "static", "docs"])
def test_names_used_in_urls_are_reserved(name: str) -> None:
    assert name in RESERVED_SLUGS


@given(st.text(max_size=200))
def test_every_proposal_is_a_slug(text: str) -> None:
    proposal = propose_slug(text)
    assert validate_slug(proposal) == proposal


@given(st.text(alphabet=string.ascii_letters + string.digits + "-./_ é\0", max_size=70))
def test_a_valid_slug_is_a_valid_host_label(text: str) -> None:
    try:
        slug = validate_slug(text)
    except InvalidSlug:
        return
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", slug)
    assert slug == text
