// The search page: what is typed and chosen becomes a request, the newest answer is shown, the rest is dropped.
import { readAddress, writeAddress } from "./address.js";
import { get } from "./api.js";
import { hitCard, pageCard } from "./cards.js";
import { byId, el, plural, short } from "./dom.js";
import { Filters } from "./filters.js";
import { keyButton } from "./key.js";
import { listen } from "./keyboard.js";
import { Preview } from "./preview.js";
import { clearState, say, sayProblem } from "./states.js";

const PAUSE = 90; // milliseconds without a key before a request goes out
const STEP = 10;
const MOST = 100;
const RECENT = 8;

const input = byId("q");
const results = byId("results");
const place = byId("state");
let state = readAddress();
let wanted = STEP;
let timer = 0;
let running = null;
let shownFor = null;

const preview = new Preview((change, push) => go(change, push));
const filters = new Filters((change) => go(change, true));

// Everything that changes what is shown passes through here.
function go(change, push = false) {
  const before = state;
  state = { ...state, ...change };
  writeAddress(state, push);
  follow(before);
}

function follow(before) {
  const same = ["q", "mode", "tags", "categories", "path"].every((name) => String(before[name]) === String(state[name]));
  if (!same) {
    wanted = STEP;
    filters.show(state);
    search();
  }
  preview.show(state);
  mark();
}

function fill() {
  if (input.value !== state.q) input.value = state.q;
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.checked = radio.value === state.mode;
  byId("clear").hidden = !input.value;
}

async function search() {
  clearTimeout(timer);
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const asked = state;
  document.title = asked.q ? `${asked.q} · ${wikiName}` : wikiName;
  const narrowed = asked.tags.length || asked.categories.length || asked.path;
  const where = { tag: asked.tags, category: asked.categories, path: asked.path };
  document.body.classList.add("waiting");
  try {
    if (asked.q.trim()) {
      showAnswer(await get("search", { q: asked.q, mode: asked.mode, n: wanted, ...where }, mine.signal), asked);
    } else {
      showPages(await (narrowed ? get("pages", { limit: wanted, ...where }, mine.signal) : recent(mine.signal)), asked, narrowed);
    }
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    showNothing();
    sayProblem(place, error, begin);
  } finally {
    if (running === mine) { running = null; document.body.classList.remove("waiting"); }
  }
}

// Pages that changed of late; in a quiet wiki, the latest of some.
async function recent(signal) {
  let found = { pages: [], total: 0 };
  for (const narrowed of [{ since: "14d" }, { since: "90d" }, {}]) {
    found = await get("pages", { limit: 200, ...narrowed }, signal);
    if (found.total >= RECENT) break;
  }
  const latest = [...found.pages].sort((a, b) => String(b.last_updated).localeCompare(String(a.last_updated)));
  return { pages: latest.slice(0, RECENT), total: RECENT, recent: true };
}

function showNothing() {
  shownFor = null;
  results.replaceChildren();
  byId("notes").replaceChildren();
  byId("count").textContent = "";
  byId("fresh").hidden = true;
  byId("more").hidden = true;
  clearState(place);
}

function showAnswer(answer, asked) {
  clearState(place);
  document.body.classList.remove("resting");
  const found = answer.results;
  const cards = found.map((hit) => hitCard(hit, { ...asked, page: "", anchor: "" }));
  const firstWeak = found.findIndex((hit) => hit.confidence === "low");
  if (firstWeak > 0) cards.splice(firstWeak, 0, el("li", { class: "divider" }, "Less certain"));
  results.replaceChildren(...cards);
  shownFor = asked;
  byId("count").textContent = found.length
    ? `${plural(found.length, "page")} of ${answer.considered.toLocaleString("en")} · ${Math.max(1, Math.round(answer.took_ms))} ms`
    : "No page found";
  if (!found.length) sayNone(asked);
  else if (answer.nothing_relevant) {
    say(place, "Nothing here is clearly relevant.", "These pages come nearest, in case one of them helps.");
    byId("count").textContent = `Nothing clearly relevant · ${byId("count").textContent}`;
  }
  byId("more").hidden = found.length < wanted || wanted >= MOST || found.length >= answer.considered;
  freshness(answer);
  notes(answer);
  mark();
}

function sayNone(asked) {
  const narrowed = asked.tags.length || asked.categories.length || asked.path;
  const without = () => go({ tags: [], categories: [], path: "" }, true);
  const both = () => { go({ mode: "hybrid" }, true); fill(); };
  say(place, "Nothing found.", narrowed ? "No page passes the filters you chose." : "No page of this wiki holds these words.",
    narrowed && el("button", { type: "button", on: { click: without } }, "Search without filters"),
    !narrowed && asked.mode === "keyword" && el("button", { type: "button", on: { click: both } }, "Search by meaning too"));
}

function showPages(listing, asked, narrowed) {
  clearState(place);
  const pages = listing.pages.slice(0, wanted);
  document.body.classList.toggle("resting", !narrowed);
  results.replaceChildren(...pages.map((page) => pageCard(page, { ...asked, page: "", anchor: "" })));
  shownFor = asked;
  byId("count").textContent = narrowed ? `${plural(listing.total, "page")} with these filters` : pages.length ? "Recently changed" : "";
  if (!pages.length) say(place, narrowed ? "No page passes these filters." : "This wiki has no page yet.");
  byId("more").hidden = listing.recent || listing.total <= wanted;
  byId("fresh").hidden = true;
  byId("notes").replaceChildren();
  mark();
}

async function freshness(answer) {
  const line = byId("fresh");
  line.hidden = !answer.stale;
  if (!answer.stale) return;
  line.textContent = `The index is behind: it stands at ${short(answer.indexed_revision)}`;
  const behind = await commitsBehind(answer);
  if (behind > 0 && running === null) line.textContent = `The index is ${plural(behind, "commit")} behind`;
}

// How many commits the repository is ahead, where the log tells; asked for once for each pair of revisions.
let counted = { pair: "", behind: 0 };
async function commitsBehind({ indexed_revision: from, head_revision: to }) {
  const pair = `${from} ${to}`;
  if (from && to && counted.pair !== pair) {
    counted = { pair, behind: 0 };
    try {
      const log = await get("changelog", { limit: 100 });
      counted.behind = log.entries.findIndex((entry) => entry.revision === from);
    } catch { /* The line says that it is behind; by how much is an extra. */ }
  }
  return counted.behind;
}

function notes(answer) {
  const lines = answer.notes.map((note) => el("p", { class: "note" }, note));
  if (answer.degraded && !lines.length) lines.push(el("p", { class: "note" }, "Something had to be gone around; the answer may be less complete."));
  byId("notes").replaceChildren(...lines);
}

// The card of the page that lies open.
function mark() {
  for (const link of results.querySelectorAll("a[data-page]")) {
    const open = link.dataset.page === state.page;
    link.closest(".card").classList.toggle("open", open);
    if (open) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
}

function typed() {
  byId("clear").hidden = !input.value;
  clearTimeout(timer);
  const begins = !state.q;
  timer = setTimeout(() => go({ q: input.value }, begins && input.value !== ""), PAUSE);
}

function open(link, push = true) {
  preview.aim();
  if (link.dataset.page !== undefined) go({ page: link.dataset.page, anchor: link.dataset.anchor || "" }, push);
}

const wikiName = document.title;
input.addEventListener("input", (event) => { if (!event.isComposing) typed(); });
input.addEventListener("compositionend", typed);
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  if (input.value !== state.q) go({ q: input.value });
  // On a phone the key means "that is all": it puts the keyboard away.
  if (matchMedia("(pointer: coarse)").matches) { input.blur(); return; }
  if (shownFor && shownFor.q === input.value && !running) { const first = results.querySelector("a[data-page]"); if (first) open(first); }
});
byId("clear").addEventListener("click", () => { input.value = ""; go({ q: "" }, true); fill(); input.focus(); });
for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", () => go({ mode: radio.value }, true));
byId("more").addEventListener("click", async () => {
  const had = results.querySelectorAll("a[data-page]").length;
  wanted = Math.min(MOST, wanted + (state.q ? STEP : 3 * STEP));
  await search();
  results.querySelectorAll("a[data-page]")[had]?.focus();
});
results.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  open(link);
});
addEventListener("popstate", () => {
  const before = state;
  state = readAddress();
  fill();
  follow(before);
});
listen({ input, results, preview, open, clear: () => { input.value = ""; go({ q: "" }, true); fill(); } });

function begin() {
  keyButton(begin);
  filters.load(state);
  search();
  preview.forget();
  preview.show(state, true);
}
fill();
filters.chosen(state);
begin();
