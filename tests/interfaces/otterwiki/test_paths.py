"""Paths, names and links of pages as Otterwiki has them."""

import pytest

pytest.importorskip("otterwiki")


def make_path_style(**settings: object):  # type: ignore[no-untyped-def]
    # Its module imports Flask's Otterwiki helpers only, no running wiki.
    from wikiholt.interfaces.otterwiki.page_paths import OtterwikiPaths

    return OtterwikiPaths(**{"retain_case": False, **settings})


@pytest.mark.parametrize(
    ("path", "display"),
    [("growing/crop rotation", "Growing/Crop Rotation"), ("notes/iOS", "Notes/iOS"), ("straße", "Straße")],
)
def test_small_letters_are_shown_as_capitals_and_found_again(path: str, display: str) -> None:
    assert make_path_style().to_display_path(path) == display
    assert make_path_style(retain_case=True).to_display_path(path) == path
    assert make_path_style().to_git_path(f"/{display}/") == path.lower()


def test_links_lead_below_the_path_that_the_wiki_is_mounted_at() -> None:
    assert make_path_style().to_url("/growing/pests#slugs") == "/growing/pests#slugs"
    assert make_path_style(root="/wiki").to_url("/growing/pests#slugs") == "/wiki/growing/pests#slugs"
    assert make_path_style(root="/wiki").to_url("https://example.org/pests") == "https://example.org/pests"
