// The list of a search page: search results or pages, with notes and the freshness of the index.
import { get } from "./api.js";
import { groupByPage, renderHit, renderPage, renderWeakHit } from "./cards.js";
import { countCommitsBehind } from "./commits_behind.js";
import { byId, el, plural, shortRevision, toSentence } from "./dom.js";
import { clearMessage, showMessage } from "./messages.js";
import { buildUrl, hasFilters } from "./url_state.js";

const MAX_RESULTS = 100;
const MAX_WEAK_CARDS = 3;
const RECENT_PAGES = 8;
// Files that every repository has; nobody opens a wiki for them.
const BOILERPLATE = /^(licen[cs]e|copying|notice|readme|security|contributing|contributors|authors|maintainers|codeowners|code_of_conduct|changelog|changes|governance|support|pull_request_template|issue_template)([-_.].*)?$/i;
const isBoilerplate = (page) => BOILERPLATE.test(page.path.split("/").at(-1));
const results = byId("results");
const messageArea = byId("state");

export function clearResults() {
  results.replaceChildren();
  byId("notes").replaceChildren();
  byId("count").textContent = "";
  byId("fresh").hidden = true;
  byId("more").hidden = true;
}

// The cards of hits: several passages of a page in one card, and less likely pages as one line each below the others.
// `getOptions` returns what a card of a hit shows beside the hit. `likely` counts the pages that are probably answers.
export function renderHits(hits, state, getOptions = () => ({})) {
  const pages = groupByPage(hits);
  const isWeak = ([hit]) => hit.confidence === "low";
  const likely = pages.filter((page) => !isWeak(page));
  // If no page is a likely answer, the first ones are shown in full.
  const isFull = (page, index) => (likely.length ? !isWeak(page) : index < MAX_WEAK_CARDS);
  const full = pages.filter(isFull);
  const folded = pages.filter((page, index) => !isFull(page, index));
  const getName = (hit) => `${hit.wiki || ""}/${hit.name}`;
  const names = pages.map(([hit]) => getName(hit));
  const isRepeated = (hit) => names.indexOf(getName(hit)) !== names.lastIndexOf(getName(hit));
  const render = (make) => ([hit, ...more]) => make(hit, state, more, { isRepeated: isRepeated(hit), ...getOptions(hit) });
  const cards = full.map(render(renderHit));
  if (full.length && folded.length) cards.push(el("li", { class: "divider" }, plural(folded.length, "less likely page")));
  return { cards: [...cards, ...folded.map(render(renderWeakHit))], likely: likely.length, count: pages.length };
}

// `retryActions` are offered if there are no results.
export function showResults(answer, state, limit, retryActions) {
  clearMessage(messageArea);
  document.body.classList.remove("idle");
  // A page of the past that has another name today opens under that one.
  const hits = answer.results.map((hit) => (hit.now?.path ? { ...hit, path: hit.now.path } : hit));
  const { cards, likely, count } = renderHits(hits, { ...state, page: "", anchor: "" });
  results.replaceChildren(...cards);
  byId("count").textContent = hits.length
    ? `${plural(likely, "likely page")} · ${plural(answer.considered, "page")} searched${answer.reranked ? " · reranked" : ""}`
    : "No page found";
  if (!hits.length) showNoResults(state, retryActions);
  else if (answer.nothing_relevant) {
    showMessage(messageArea, "Nothing here is clearly relevant.", "These pages match best.");
    byId("count").textContent = `${plural(answer.considered, "page")} searched`;
  }
  byId("more").hidden = hits.length < limit || limit >= MAX_RESULTS || count >= answer.considered;
  if (answer.at) byId("count").append(` · as of ${answer.at.date.slice(0, 10)} (${shortRevision(answer.at.revision)})`);
  showFreshness(answer);
  showNotes(answer, state);
}

function showNoResults(state, retryActions) {
  const filtered = hasFilters(state);
  const button = (run, words) => el("button", { type: "button", on: { click: run } }, words);
  showMessage(messageArea, "Nothing found.", filtered ? "No page matches your filters." : "No page of this wiki contains these words.",
    filtered && button(retryActions.withoutFilters, "Search without filters"),
    !filtered && state.mode === "keyword" && button(retryActions.byMeaningToo, "Search by meaning too"));
}

export function showPages(listing, state, limit, filtered) {
  clearMessage(messageArea);
  const pages = listing.pages.slice(0, limit);
  document.body.classList.toggle("idle", !filtered);
  results.replaceChildren(...pages.map((page) => renderPage(page, { ...state, page: "", anchor: "" })));
  byId("count").textContent = filtered ? `${plural(listing.total, "page")} with these filters` : pages.length ? "Recently changed" : "";
  if (!pages.length) showMessage(messageArea, filtered ? "No page matches these filters." : "This wiki has no page yet.");
  byId("more").hidden = listing.recent || listing.total <= limit;
  byId("fresh").hidden = true;
  byId("notes").replaceChildren();
}

// The pages that changed last, within a period that grows until there are enough.
export async function fetchRecentPages(signal, url = "pages") {
  let listing = { pages: [], total: 0 };
  for (const period of [{ since: "14d" }, { since: "90d" }, {}]) {
    listing = await get(url, { limit: 200, ...period }, signal);
    if (listing.total >= RECENT_PAGES) break;
  }
  const own = listing.pages.filter((page) => !isBoilerplate(page));
  const latest = [...(own.length ? own : listing.pages)].sort((a, b) => String(b.last_updated).localeCompare(String(a.last_updated)));
  return { pages: latest.slice(0, RECENT_PAGES), total: RECENT_PAGES, recent: true };
}

async function showFreshness(answer) {
  const line = byId("fresh");
  // Before the first sync is complete, a note says that pages are missing.
  line.hidden = !answer.stale || !answer.indexed_revision;
  if (line.hidden) return;
  const text = `The index is behind: it is at ${shortRevision(answer.indexed_revision)}`;
  line.textContent = text;
  const behind = await countCommitsBehind(answer);
  if (behind > 0 && line.textContent === text) line.textContent = `The index is ${plural(behind, "commit")} behind`;
}

function showNotes(answer, state) {
  const lines = answer.notes.map((note) => el("p", { class: "note" }, toSentence(note)));
  if (answer.did_you_mean) lines.unshift(renderCorrection(answer, state));
  byId("notes").replaceChildren(...lines);
}

// A word that no page contains was corrected; a link searches for the typed words.
function renderCorrection(answer, state) {
  const typed = buildUrl({ ...state, q: answer.as_typed, page: "", anchor: "" });
  return el("p", { class: "correction" }, "Showing results for ", el("strong", {}, answer.did_you_mean), ". ", el("a", { href: typed }, `Search for ${answer.query}`));
}

// Marks the card of the page that is open in the preview.
export function markOpenPage(path) {
  for (const link of results.querySelectorAll("a[data-page]")) {
    const open = link.dataset.page === path;
    link.closest(".card").classList.toggle("open", open);
    if (open) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
}
