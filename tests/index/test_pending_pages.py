"""Which pages are embedded first."""

from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.index.pending_pages import PendingPages, is_boilerplate

LINKS = "\n".join(f"- [Page {number}](page-{number}.md)" for number in range(12))
TABLE = "| code | meaning |\n|---|---|\n" + "\n".join(f"| E{number} | fault {number} |" for number in range(12))
PROSE = "The pump stops when the tank is empty, and starts again by itself."


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("docs/LICENSE.md", PROSE, True),
        ("_Sidebar.md", PROSE, True),
        ("CODE_OF_CONDUCT.md", PROSE, True),
        ("licences-of-our-vendors/pump.md", PROSE, False),
        ("authorship.md", PROSE, False),
        ("map.md", f"# All pages\n\n{LINKS}", True),
        ("codes.md", TABLE, True),
        ("pump.md", PROSE, False),
        ("pump.md", f"{LINKS}\n\n{PROSE}\n\n{PROSE}", False),
        ("short.md", "- [Pump](pump.md)", False),
    ],
)
def test_boilerplate_is_known_by_its_name_or_its_lines(file: str, text: str, expected: bool) -> None:
    assert is_boilerplate(file, text) is expected


@pytest.mark.model
def test_boilerplate_is_embedded_last_although_it_has_just_changed(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit({f"Pump {number}.md": f"# Pump {number}\n\n{PROSE}" for number in range(80)})
    repository.commit({"LICENSE.md": "# Licence\n\nAll of it is free.", "Home.md": f"# All pages\n\n{LINKS}"})
    service = open_service(tmp_path / "data")
    service.add("garden", str(repository.path), {})
    service.get_handle("garden").sync(words_only=True)
    with service.get_handle("garden").open_contents() as (index, _, _):
        assert [*PendingPages.read(index).lengths][80:] == ["Home.md", "LICENSE.md"]
    service.close()
