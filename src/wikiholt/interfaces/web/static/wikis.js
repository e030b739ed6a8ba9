// The start page with several wikis: the wikis that the user may see, and a search in all of them.
import { showAccessLinks, showNoWiki } from "./access.js";
import { get } from "./api.js";
import { byId, el, plural, renderTime } from "./dom.js";
import { setUpKeyButton } from "./key.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { rememberSearch, showRecentSearches } from "./recent.js";
import { fetchRecentPages, renderHits } from "./results.js";
import { makeRoving } from "./roving.js";
import { addGlobalShortcuts } from "./shortcuts.js";
import { getStatusLabel } from "./status_label.js";

const PAGE_SIZE = 60;
const MAX_WIKIS_WITH_STATUS = 24;
const MAX_WIKIS_PER_SEARCH = 50;
const MAX_WIKIS_WITH_CHANGES = 8;
const MAX_CHANGES = 6;
const TYPING_DELAY_MS = 150;
const FINISHED_DELAY_MS = 600;
const MAX_RESULTS = 20;
const input = byId("q");
const results = byId("results");
let wikis = [];
let shown = PAGE_SIZE;
let timer = 0;
let finishTimer = 0;
let running = null;
let requested = "";
let withheld = null;
let isFinished = true;

const canSearch = () => wikis.length > 1 && wikis.length <= MAX_WIKIS_PER_SEARCH;

const filterWikis = () => {
  const text = input.value.trim().toLowerCase();
  return wikis.filter((wiki) => `${wiki.slug} ${wiki.description || ""}`.toLowerCase().includes(text));
};

function show() {
  const matches = filterWikis();
  if (byId("wikis").contains(document.activeElement)) input.focus();
  byId("wikis").replaceChildren(...matches.slice(0, shown).map((wiki) => el("li", {},
    el("a", { href: `w/${encodeURIComponent(wiki.slug)}/` },
      el("span", { class: "initial", "aria-hidden": "true" }, Array.from(wiki.slug)[0].toUpperCase()),
      el("span", { class: "name" }, wiki.slug, wiki.description && el("span", { class: "about" }, wiki.description), el("small", {}))))));
  showStatuses();
  byId("more").hidden = matches.length <= shown;
  // The search box says how many wikis it searches.
  byId("count").textContent = matches.length === wikis.length ? (canSearch() ? "" : plural(wikis.length, "wiki")) : `${matches.length} of ${plural(wikis.length, "wiki")}`;
}

// Shows the status of each wiki if there are few of them.
async function showStatuses() {
  if (wikis.length > MAX_WIKIS_WITH_STATUS) return;
  for (const link of byId("wikis").querySelectorAll("a")) {
    try {
      const status = statuses.get(link.href) || await get(new URL("api/v1/status", link.href));
      statuses.set(link.href, status);
      link.querySelector("small").textContent = `${plural(status.pages, "page")} · ${getStatusLabel(status)[1].toLowerCase()}`;
    } catch { /* The page of the wiki shows the error. */ }
  }
}
const statuses = new Map();

// Shows the pages that changed last in all wikis, if there are few of them.
async function showChanges() {
  if (wikis.length > MAX_WIKIS_WITH_CHANGES) return;
  const base = (wiki) => `w/${encodeURIComponent(wiki.slug)}/`;
  const fetchChanges = async (wiki) => (await fetchRecentPages(undefined, new URL(`${base(wiki)}api/v1/pages`, location.href))).pages.map((page) => ({ ...page, wiki }));
  const changes = (await Promise.all(wikis.map((wiki) => fetchChanges(wiki).catch(() => [])))).flat();
  changes.sort((a, b) => String(b.last_updated).localeCompare(String(a.last_updated)));
  const items = changes.slice(0, MAX_CHANGES).map((page) => el("li", {},
    el("a", { href: `${base(page.wiki)}read?${new URLSearchParams({ page: page.path })}` }, page.name),
    el("span", { class: "wiki-label place" }, page.wiki.slug), renderTime(page.last_updated)));
  byId("changed").querySelector("ul").replaceChildren(...items);
  byId("changed").hidden = !items.length || Boolean(input.value.trim());
}

const showSearches = () => { if (canSearch() && !input.value.trim()) showRecentSearches((query) => `?${new URLSearchParams({ q: query })}`); else byId("recent").hidden = true; };

// Search in all wikis

function getUrl(hit) {
  const parameters = new URLSearchParams({ q: input.value, page: hit.path }).toString().replaceAll("%2F", "/");
  return `w/${encodeURIComponent(hit.wiki)}/?${parameters}${hit.anchor ? `#${encodeURIComponent(hit.anchor)}` : ""}`;
}

function showAnswer(answer) {
  withheld = null;
  document.body.classList.toggle("pending", input.value.trim() !== requested);
  const { cards, likely } = renderHits(answer.results, {}, (hit) => ({ label: hit.wiki, getUrl }));
  const hadFocus = results.contains(document.activeElement);
  results.replaceChildren(...cards);
  if (hadFocus) (results.querySelector("a[data-page]") || input).focus();
  makeRoving(results, "a[data-page]");
  byId("notes").replaceChildren(...answer.notes.map((note) => el("p", { class: "note" }, note)));
  byId("count").textContent = `${answer.nothing_relevant ? "" : `${plural(likely, "likely page")} · `}${plural(answer.wikis.length, "wiki")} searched`;
  clearMessage(byId("state"));
  if (answer.nothing_relevant) showMessage(byId("state"), cards.length ? "Nothing here is clearly relevant." : "Nothing found.", cards.length ? "These pages match best." : "");
}

async function search() {
  clearTimeout(timer);
  running?.abort();
  withheld = null;
  const query = input.value.trim();
  requested = query;
  show();
  showSearches();
  document.querySelector("h1").classList.toggle("visually-hidden", Boolean(query) && canSearch());
  byId("changed").hidden = Boolean(query) || !byId("changed").querySelector("li");
  history.replaceState(null, "", query ? `?${new URLSearchParams({ q: query })}` : location.pathname);
  if (!query || !canSearch()) { results.replaceChildren(); byId("notes").replaceChildren(); clearMessage(byId("state")); document.body.classList.remove("pending"); return; }
  const controller = new AbortController();
  running = controller;
  document.body.classList.add("waiting");
  try {
    const answer = await get("search", { q: query, n: MAX_RESULTS, max_chunks_per_page: 2, wiki: wikis.map((wiki) => wiki.slug) }, controller.signal);
    if (running !== controller) return;
    if (isFinished || !answer.nothing_relevant) showAnswer(answer); else withheld = answer;
  } catch (error) {
    if (error.name === "AbortError" || running !== controller) return;
    results.replaceChildren();
    document.body.classList.remove("pending");
    showProblem(byId("state"), error, search);
  } finally {
    if (running === controller) { running = null; document.body.classList.remove("waiting"); }
  }
}

function onInput() {
  shown = PAGE_SIZE;
  clearTimeout(timer);
  clearTimeout(finishTimer);
  isFinished = false;
  if (!canSearch()) { show(); return; }
  document.body.classList.add("pending");
  timer = setTimeout(search, TYPING_DELAY_MS);
  finishTimer = setTimeout(finish, FINISHED_DELAY_MS);
}

// The query is complete: its results are final, and may be none.
function finish() {
  clearTimeout(finishTimer);
  isFinished = true;
  if (input.value.trim() !== requested) search();
  else if (withheld) showAnswer(withheld);
}

async function load() {
  setUpKeyButton(load);
  showAccessLinks();
  clearMessage(byId("state"));
  try {
    wikis = (await get("wikis", { limit: 10000 })).wikis;
  } catch (error) {
    showProblem(byId("state"), error, load);
    return;
  }
  if (wikis.length === 1) { location.replace(`w/${encodeURIComponent(wikis[0].slug)}/`); return; }
  byId("wiki-box").hidden = wikis.length < 2;
  if (canSearch()) { byId("q-label").textContent = "Search all wikis"; input.placeholder = `Search ${plural(wikis.length, "wiki")}…`; }
  if (!wikis.length) {
    byId("count").textContent = "";
    showNoWiki(byId("state"), load);
    return;
  }
  input.value ||= new URLSearchParams(location.search).get("q") || "";
  search();
  showChanges();
}

results.addEventListener("click", (event) => { if (event.target.closest("a") && input.value.trim()) rememberSearch(input.value.trim()); });
input.addEventListener("input", onInput);
byId("more").addEventListener("click", () => { shown += 10 * PAGE_SIZE; show(); });
addGlobalShortcuts();
document.addEventListener("keydown", (event) => {
  const focused = document.activeElement;
  if (document.querySelector("dialog[open]") || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...document.querySelectorAll("#app\\.wikis a, #app\\.results a[data-page]")];
  const index = links.indexOf(focused);
  if (event.key === "Escape" && focused === input) { input.value = ""; search(); }
  // Until the answer to what is typed has come, the first link may be another one.
  else if (event.key === "Enter" && focused === input && document.body.classList.contains("pending")) finish();
  else if (event.key === "Enter" && focused === input) links[0]?.click();
  else if (event.key === "ArrowDown" && (focused === input || index >= 0)) { event.preventDefault(); links[Math.min(index + 1, links.length - 1)]?.focus(); }
  else if (event.key === "ArrowUp" && index >= 0) { event.preventDefault(); (index ? links[index - 1] : input).focus(); }
});
load();
