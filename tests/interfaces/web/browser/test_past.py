"""Searching the wiki as it was in a browser: the control, the removed pages, and who sees it."""

import subprocess

import pytest
from playwright.sync_api import expect

from tests.interfaces.web.browser.conftest import ManagedServer
from tests.support.browser import OpenTab
from tests.support.wait import wait_until

pytestmark = pytest.mark.model

CARDS = "#app\\.results .card"
CONTROL = "The wiki as it was at"


def read_head(managed: ManagedServer) -> str:
    return subprocess.check_output(["git", "-C", str(managed.runbook), "rev-parse", "HEAD"], text=True).strip()


def test_a_removed_page_is_found_at_an_earlier_commit_and_says_who_removed_it(
    managed: ManagedServer, visit: OpenTab
) -> None:
    managed.commit("Zeppelin.md", b"# Zeppelin\n\nThe mooring mast for airships was closed.\n")
    at = read_head(managed)
    subprocess.run(["git", "-C", str(managed.runbook), "rm", "-q", "Zeppelin.md"], check=True)
    managed.commit("Note.md", b"# Note\n\nNo airships any more.\n")
    head = read_head(managed)
    managed.call("POST", "wake", {}, key="write")
    wait_until(lambda: managed.call("GET", "status").json()["indexed_revision"] == head, "the removal is indexed")
    page = managed.open(visit, "write", "?q=mooring+mast+for+airships", CARDS, expected=("404",)).page
    page.get_by_label(CONTROL).fill(at[:12])
    page.get_by_label(CONTROL).press("Enter")
    card = page.locator(CARDS, has_text="Zeppelin")
    expect(card.locator(".now.removed")).to_contain_text("by Bo Lind")
    expect(card.locator("a[data-page]")).to_have_count(0)
    expect(page.locator("#app\\.count")).to_contain_text(f"({at[:10]})")
    assert f"at={at[:12]}" in page.url
    page.get_by_role("button", name=f"Remove the filter At {at[:12]}").click()
    expect(page.locator(".now")).to_have_count(0)
    page.get_by_label(CONTROL).fill("v99")
    page.get_by_label(CONTROL).press("Enter")
    expect(page.locator(".problem")).to_contain_text("There is no tag, branch or commit 'v99' here.")


def test_readers_have_no_control_for_the_past(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.open(visit, "read", "?q=payments", CARDS).page
    expect(page.get_by_role("group", name="Changed")).to_be_visible()
    expect(page.get_by_label(CONTROL)).to_have_count(0)
