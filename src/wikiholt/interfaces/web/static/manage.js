// Administration of one wiki with an admin key, and of all wikis with an operator key. The fragment names the section.
import { isAdmin, showAccessLinks } from "./access.js";
import { byId, el } from "./dom.js";
import { renderKeyButton, setUpKeyButton } from "./key.js";
import { showBackups } from "./manage_backups.js";
import { showIndex } from "./manage_index.js";
import { showKeys } from "./manage_keys.js";
import { showSearches } from "./manage_searches.js";
import { showSettings } from "./manage_settings.js";
import { showWikis } from "./manage_wikis.js";
import { clearMessage, showMessage } from "./messages.js";

const WIKI_SECTIONS = { index: ["Index", showIndex], keys: ["Keys", showKeys], backups: ["Backups", showBackups], searches: ["Searches", showSearches] };
const OPERATOR_SECTIONS = { settings: ["Settings", showSettings] };
const SERVICE_SECTIONS = { wikis: ["Wikis", showWikis], keys: ["Keys", showKeys] };
const isBelowWiki = Boolean(document.querySelector(".wiki-name"));
let sections = {};
let access = null;
let current = "";
let stop = null;

function show(name) {
  stop?.();
  document.querySelector("dialog[open]")?.close();
  current = name;
  for (const link of byId("sections").querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const area = byId("section");
  area.setAttribute("aria-label", sections[name][0]);
  area.replaceChildren();
  byId("count").textContent = "";
  clearMessage(byId("state"));
  // A section returns a function that stops its timers.
  stop = sections[name][1](area, access) || null;
}

function onHashChange() {
  const name = location.hash.slice(1);
  if (name === current || !sections[name]) return;
  show(name);
  byId("section").focus();
}

function showNoAccess() {
  byId("sections").hidden = true;
  byId("section").replaceChildren();
  showMessage(byId("state"), isBelowWiki ? "You cannot manage this wiki." : "You cannot manage wikis.", "You need a key with the scope admin, or an operator key.",
    el("p", { class: "actions" }, renderKeyButton("", "", load)));
}

async function load() {
  setUpKeyButton(load);
  stop?.();
  stop = null;
  access = await showAccessLinks();
  if (!isAdmin(access)) { showNoAccess(); return; }
  const isService = access.operator && !isBelowWiki;
  if (!isBelowWiki && !isService) byId("title").textContent = `Manage ${access.wiki}`;
  sections = isService ? SERVICE_SECTIONS : { ...WIKI_SECTIONS, ...(access.operator ? OPERATOR_SECTIONS : {}) };
  byId("sections").replaceChildren(...Object.entries(sections).map(([name, [title]]) => el("a", { href: `#${name}` }, title)));
  byId("back").hidden = !(access.operator && isBelowWiki);
  byId("sections").hidden = false;
  const name = location.hash.slice(1);
  show(sections[name] ? name : Object.keys(sections)[0]);
}

addEventListener("hashchange", onHashChange);
load();
