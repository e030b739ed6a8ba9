"""Page paths, names and links in the style of Otterwiki."""

import pytest

pytest.importorskip("otterwiki")


def make_path_style(**settings: object):  # type: ignore[no-untyped-def]
    # The module imports only Otterwiki helpers and needs no running wiki.
    from wikiholt.interfaces.otterwiki.wiki_resolver import OtterwikiPaths

    return OtterwikiPaths(**{"retain_case": False, **settings})


@pytest.mark.parametrize(
    ("path", "display"),
    [("growing/crop rotation", "Growing/Crop Rotation"), ("notes/iOS", "Notes/iOS"), ("straße", "Straße")],
)
def test_lower_case_paths_are_displayed_capitalized_and_parsed_back(path: str, display: str) -> None:
    assert make_path_style().to_display_path(path) == display
    assert make_path_style(retain_case=True).to_display_path(path) == path
    assert make_path_style().to_git_path(f"/{display}/") == path.lower()


def test_links_include_the_mount_path_of_the_wiki() -> None:
    assert make_path_style().to_url("/growing/pests#slugs") == "/growing/pests#slugs"
    assert make_path_style(root="/wiki").to_url("/growing/pests#slugs") == "/wiki/growing/pests#slugs"
    assert make_path_style(root="/wiki").to_url("https://example.org/pests") == "https://example.org/pests"
