"""Several pages in one call, tags and folders, diffs, edits of parts, filtered changes, and lenient arguments."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.mcp.mcp_client import call_tool, get_document, get_text
from tests.support.git_repository import Repository
from tests.support.served_application import ServedApplication


def test_several_pages_share_the_budget_and_a_missing_one_is_named(served: ServedApplication, url: str) -> None:
    long_text = "# Long\n\n" + "Something about pumps and valves.\n" * 400
    served.alpha.commit({"Several/Long.md": long_text, "Several/Short.md": "# Short\n\nBrief.\n"})
    read = partial(call_tool, url, served.tokens["read"], "read_pages")
    pages = get_document(read(paths=["Several/Long", "Several/Nowhere", "Several/Short"], max_tokens=1000))["pages"]
    assert [page["path"] for page in pages] == ["Several/Long", "Several/Nowhere", "Several/Short"]
    assert pages[1]["error"].startswith("page-not-found: ")
    assert (pages[2]["content"], pages[2]["continuation"]) == ("# Short\n\nBrief.\n", None)
    rest = pages[0]["continuation"]
    assert rest["tool"] == "read_page"
    following = get_document(call_tool(url, served.tokens["read"], "read_page", **rest["arguments"]))
    assert following["lines"][0] == pages[0]["lines"][1] + 1
    many = get_document(read(paths=[f"Several/{number}" for number in range(20)], max_tokens=300))
    left = many["continuation"]["arguments"]["paths"]
    assert [page["path"] for page in many["pages"]] + left == [f"Several/{number}" for number in range(20)]


def test_tags_and_folders_are_listed_with_numbers_of_pages(served: ServedApplication, url: str) -> None:
    head = "---\ntags: [inventory]\ncategory: stock\n---\n"
    served.alpha.commit({"Tagged/A/One.md": f"{head}# One\n", "Tagged/B/Two.md": f"{head}# Two\n"})
    served.application.service.get_handle("alpha").sync()
    listed = partial(call_tool, url, served.tokens["read"], "list_tags")
    document = get_document(listed())
    assert (document["tags"]["inventory"], document["categories"]["stock"], document["folders"]["Tagged"]) == (2, 2, 2)
    below = get_document(listed(prefix="Tagged"))
    assert below["pages"] == 2
    assert sorted(below["folders"].values()) == [1, 1]
    first = get_document(listed(prefix="Tagged", limit=1))
    second = get_document(listed(**first["continuation"]["arguments"]))
    assert {**first["folders"], **second["folders"]} == below["folders"]


def test_a_diff_shows_the_last_change_or_that_between_two_revisions(served: ServedApplication, url: str) -> None:
    revisions = []
    for text in ("one\ntwo\n", "one\n2\n", "one\n2\nthree\n"):
        served.alpha.commit({"Differs.md": text})
        revisions.append(served.alpha.get_head())
    diff = partial(call_tool, url, served.tokens["read"], "diff_page", path="Differs")
    last = get_document(diff())
    assert (last["from_revision"], last["to_revision"]) == (revisions[1], revisions[2])
    assert [line for line in last["diff"].splitlines() if line[0] in "+-"][2:] == ["+three"]
    both = get_document(diff(from_revision=revisions[0]))["diff"]
    assert [line for line in both.splitlines() if line[0] in "+-"][2:] == ["-two", "+2", "+three"]
    created = get_document(diff(to_revision=revisions[0]))
    assert created["from_revision"] is None
    assert "+two" in created["diff"]
    assert created["diff"].startswith("--- /dev/null\n+++ b/Differs.md\n@@ -0,0 +1,2 @@\n")
    assert "No line differs." in get_text(diff(from_revision=revisions[2], to_revision=revisions[2]))
    before = served.alpha.run_git("rev-list", "--max-parents=0", "HEAD").decode().strip()
    assert "had another path" in get_text(diff(from_revision=before))


def test_a_diff_can_be_applied_with_git(served: ServedApplication, url: str, tmp_path: Path) -> None:
    texts = ["a\nb\nc\nd\ne\n", "a\nc\ne\n", "a\nc\ne", "a\n\u2028x\r\nnew", ""]
    for text in texts:
        served.alpha.commit({"Notes/Applied page.md": text})
    repository = Repository(tmp_path / "copy")
    revisions = served.alpha.run_git("log", "--format=%H", "--", "Notes/Applied page.md").decode().split()[::-1]
    for revision, text in zip(revisions, texts, strict=True):
        found = call_tool(url, served.tokens["read"], "diff_page", path="Notes/Applied page", to_revision=revision)
        repository.run_git("apply", stdin=get_document(found)["diff"].encode())
        assert (repository.path / "Notes/Applied page.md").read_bytes() == text.encode()
        if text == texts[1]:
            assert "@@ -1,5 +1,3 @@\n a\n-b\n c\n-d\n e\n" in get_document(found)["diff"]


def test_changes_are_filtered_by_folder_and_date(served: ServedApplication, url: str) -> None:
    for number in range(3):
        served.alpha.commit({"Log/Page.md": f"{number}\n"}, message=f"Log {number}")
        served.alpha.commit({"Logbook.md": f"{number}\n"}, message=f"Book {number}")
    changes = partial(call_tool, url, served.tokens["read"], "recent_changes")
    seen, arguments = [], {"prefix": "Log", "limit": 2}
    while arguments:
        document = get_document(changes(**arguments))
        seen += [entry["message"].strip() for entry in document["entries"]]
        arguments = (document["continuation"] or {}).get("arguments")
    assert seen == ["Log 2", "Log 1", "Log 0"]
    assert get_document(changes(prefix="Log", since="2999-01-01"))["entries"] == []
    assert get_document(changes(prefix="Log", since="1999-01-01"))["entries"]
    assert get_text(changes(since="soon")).startswith("invalid-query: ")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_section_lines_or_all_places_are_replaced(served: ServedApplication, url: str, end: str) -> None:
    text = "# T\n\n## A\n\none one\n\n### Deep\n\nx\n\n## B\n\ntwo\n"
    served.alpha.commit({"Parts.md": text.replace("\n", end)})
    edit = partial(call_tool, url, served.tokens["write"], "edit_page", path="Parts")

    def read() -> str:
        content = (served.alpha.path / "Parts.md").read_bytes().decode()
        assert content.count("\n") == content.count(end)
        return content.replace(end, "\n")

    get_document(edit(old_string="one", new_string="1", replace_all=True))
    assert "\n1 1\n" in read()
    get_document(edit(section="A", new_string="## A\n\nnew"))
    assert read() == "# T\n\n## A\n\nnew\n\n## B\n\ntwo\n"
    revision = get_document(edit(section="B", new_string="## B\n\nlast\n"))["revision"]
    assert read() == "# T\n\n## A\n\nnew\n\n## B\n\nlast\n"
    get_document(edit(from_line=5, to_line=5, new_string="newer\nand newest", revision=revision))
    assert read() == "# T\n\n## A\n\nnewer\nand newest\n\n## B\n\nlast\n"
    before = served.alpha.get_head()
    wrong: list[dict[str, Any]] = [
        {"new_string": "x"},
        {"old_string": "last", "section": "B", "new_string": "x"},
        {"from_line": 1, "new_string": "x"},
        {"from_line": 99, "new_string": "x", "revision": before},
        {"section": "C", "new_string": "x"},
        {"old_string": "absent", "new_string": "x", "replace_all": True},
    ]
    for arguments in wrong:
        assert get_text(edit(**arguments)).startswith("invalid-page: "), arguments
    assert get_text(edit(section="B", new_string="x", revision=revision)).startswith("revision-mismatch: ")
    assert served.alpha.get_head() == before


def test_a_line_break_at_the_end_of_a_page_starts_no_line(served: ServedApplication, url: str) -> None:
    call = partial(call_tool, url, served.tokens["read"])
    ended, open_end = "# Ends\n\nlast line\n", "# Open\n\nlast line"
    served.alpha.commit({"Ends.md": ended, "Open.md": open_end, "Gap.md": "# Gap\n\n\n"})
    for path, content in (("Ends", ended), ("Open", open_end), ("Gap", "# Gap\n\n\n")):
        page = get_document(call("read_page", path=path))
        assert (page["content"], page["lines"], page["total_lines"]) == (content, [1, 3], 3), path
        fetched = get_document(call("fetch", id=path))
        assert (fetched["text"], fetched["metadata"]["total_lines"]) == (content, 3)
        (several,) = get_document(call("read_pages", paths=[path]))["pages"]
        assert (several["content"], several["lines"]) == (content, [1, 3])
        assert get_text(call("read_page", path=path, from_line=4)).endswith("Next: it has 3 lines.")
    assert "lines 1-3 of 3" in get_text(call("read_page", path="Ends"))
    first = get_document(call("read_page", path="Ends", to_line=2))
    rest = get_document(call("read_page", path="Ends", from_line=3))
    assert f"{first['content']}\n{rest['content']}" == ended


def test_other_names_and_types_of_arguments_are_accepted(served: ServedApplication, url: str) -> None:
    call = partial(call_tool, url, served.tokens["read"])
    assert len(get_document(call("search", q="printer", limit="1", fresh="false"))["results"]) == 1
    assert get_document(call("read_page", page="Home", start_line="3", to_line="3"))["lines"] == [3, 3]
    assert get_document(call("read_pages", path="Home"))["pages"][0]["path"] == "Home"
    assert get_document(call("list_pages", folder="Equipment"))["total"] == 1
    assert get_text(call("read_page", page="Home", path="Coffee")).startswith("invalid-input: page: ")
