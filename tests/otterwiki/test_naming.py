"""Paths, names and links of pages as Otterwiki has them."""

import pytest

pytest.importorskip("otterwiki")


def names(**settings: object):  # type: ignore[no-untyped-def]
    # Its module imports Flask's Otterwiki helpers only, no running wiki.
    from wikiholt.surfaces.otterwiki.naming import OtterNames

    return OtterNames(**{"retain_case": False, **settings})


@pytest.mark.parametrize(
    ("path", "shown"),
    [("growing/crop rotation", "Growing/Crop Rotation"), ("notes/iOS", "Notes/iOS"), ("straße", "Straße")],
)
def test_small_letters_are_shown_as_capitals_and_found_again(path: str, shown: str) -> None:
    assert names().shown(path) == shown
    assert names(retain_case=True).shown(path) == path
    assert names().meant(f"/{shown}/") == path.lower()


def test_links_lead_below_the_path_that_the_wiki_is_mounted_at() -> None:
    assert names().linked("/growing/pests#slugs") == "/growing/pests#slugs"
    assert names(root="/wiki").linked("/growing/pests#slugs") == "/wiki/growing/pests#slugs"
    assert names(root="/wiki").linked("https://example.org/pests") == "https://example.org/pests"
