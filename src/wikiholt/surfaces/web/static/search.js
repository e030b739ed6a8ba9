// The search page: what is typed and chosen becomes a request, the newest answer is shown, the rest is dropped.
import { readAddress, writeAddress } from "./address.js";
import { mark, recent, showAnswer, showNothing, showPages } from "./answers.js";
import { get } from "./api.js";
import { byId } from "./dom.js";
import { Filters } from "./filters.js";
import { keyButton } from "./key.js";
import { listen } from "./keyboard.js";
import { Preview } from "./preview.js";
import { sayProblem } from "./states.js";

const PAUSE = 90; // milliseconds without a key before a request goes out
const STEP = 10;
const MOST = 100;

const input = byId("q");
const results = byId("results");
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
  mark(state.page);
}

function fill() {
  if (input.value !== state.q) input.value = state.q;
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.checked = radio.value === state.mode;
  byId("clear").hidden = !input.value;
}

function ask(asked, narrowed, signal) {
  const where = { tag: asked.tags, category: asked.categories, path: asked.path };
  if (asked.q.trim()) return get("search", { q: asked.q, mode: asked.mode, n: wanted, ...where }, signal);
  return narrowed ? get("pages", { limit: wanted, ...where }, signal) : recent(signal);
}

const ways = {
  unfiltered: () => go({ tags: [], categories: [], path: "" }, true),
  byBoth: () => { go({ mode: "hybrid" }, true); fill(); },
};

async function search() {
  clearTimeout(timer);
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const asked = state;
  document.title = asked.q ? `${asked.q} · ${wikiName}` : wikiName;
  const narrowed = asked.tags.length || asked.categories.length || asked.path;
  document.body.classList.add("waiting");
  try {
    const found = await ask(asked, narrowed, mine.signal);
    if (running !== mine) return;
    if (asked.q.trim()) showAnswer(found, asked, wanted, ways);
    else showPages(found, asked, wanted, narrowed);
    shownFor = asked;
    mark(state.page);
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    shownFor = null;
    showNothing();
    sayProblem(byId("state"), error, begin);
  } finally {
    if (running === mine) { running = null; document.body.classList.remove("waiting"); }
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
