// What the user may do here. Links and buttons that need more are not shown.
import { FIRST_PAGE, ROOT, get, key } from "./api.js";
import { byId, el } from "./dom.js";
import { renderKeyButton } from "./key.js";
import { showMessage } from "./messages.js";

const NOTHING = { wiki: null, scope: null, writable: false, operator: false };

// An answer that does not come hides buttons; the API refuses what is not allowed in any case.
export async function loadAccess() {
  const secret = key.get();
  const access = await get("me").catch(() => NOTHING);
  // The key of a wiki must not leave it: the answer has to be about this key.
  if (secret && secret === key.get() && access.kind === "key" && access.operator) { key.forget(); key.set(secret, ROOT); }
  return access;
}

export const isAdmin = (access) => access.scope === "admin" || access.operator;

// Adds "New page" and "Manage" to the navigation, where the key allows them. Call it again after the key has changed.
export async function showAccessLinks() {
  const access = await loadAccess();
  const next = byId("account") || byId("sign-in") || byId("key");
  const nav = next.closest("nav");
  for (const old of nav.querySelectorAll(".granted")) old.remove();
  const add = (href, name, ...text) => next.before(el("a", { class: "granted", href: new URL(href, FIRST_PAGE).pathname, "aria-current": document.documentElement.dataset.view === name && !location.search ? "page" : null }, text));
  const inWiki = Boolean(document.querySelector(".wiki-name")) || !access.operator;
  if (access.writable && inWiki) add("edit", "edit", "New", el("span", { class: "longer" }, " page"));
  if (isAdmin(access)) add("manage", "manage", "Manage");
  // The page "Manage" contains the status.
  for (const link of nav.querySelectorAll("a[href$=status]")) link.hidden = isAdmin(access);
  return access;
}

// Shows that the list of wikis is empty, with a way to get access. `retry` is called after the user entered a key.
export function showNoWiki(area, retry) {
  const means = byId("sign-in") ? " before you sign in" : byId("account") ? "" : key.get() ? " with this key" : " without a key";
  showMessage(area, "No wiki to show.", `There is no wiki that you can read${means}.`, el("p", { class: "actions" }, renderKeyButton("", "", retry)));
}
