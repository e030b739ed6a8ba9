// The last searches in this wiki, kept on this device; with a key or sign-in only until the tab is closed.
import { byId, el } from "./dom.js";

const MAX_SEARCHES = 6;
const NAME = `wikiholt.recent:${location.pathname}`;
const hasKey = () => Boolean(byId("account")) || Object.keys(sessionStorage).some((name) => name.startsWith("wikiholt.key:"));
const getStorage = () => (hasKey() ? sessionStorage : localStorage);

function read() {
  try { return JSON.parse(getStorage().getItem(NAME)) || []; } catch { return []; }
}

export function rememberSearch(query) {
  if (!byId("recent")) return; // this page does not offer them
  const queries = [query, ...read().filter((other) => other !== query)].slice(0, MAX_SEARCHES);
  try { getStorage().setItem(NAME, JSON.stringify(queries)); } catch { /* searching works without it */ }
}

// Shows the searches as links; `getUrl` makes the address of a search.
export function showRecentSearches(getUrl) {
  const area = byId("recent");
  const queries = read();
  area.hidden = !queries.length;
  const clear = () => {
    try { getStorage().removeItem(NAME); } catch { /* nothing is stored */ }
    area.hidden = true;
    byId("q").focus();
  };
  area.replaceChildren(el("span", { id: "app.recent-title" }, "Recent searches"),
    el("ul", { "aria-labelledby": "app.recent-title" }, queries.map((query) => el("li", {}, el("a", { href: getUrl(query) }, query)))),
    el("button", { type: "button", class: "quiet link", "aria-label": "Clear the recent searches", on: { click: clear } }, "Clear"));
}
