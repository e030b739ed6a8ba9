// What a search page shows: an answer, a list of pages, or that there is none; and how fresh that is.
import { addressOf, narrowed } from "./address.js";
import { get } from "./api.js";
import { hitCard, pageCard } from "./cards.js";
import { byId, el, plural, short } from "./dom.js";
import { commitsBehind } from "./lag.js";
import { clearState, say } from "./states.js";

const MOST = 100;
const RECENT = 8;
const results = byId("results");
const place = byId("state");

export function showNothing() {
  results.replaceChildren();
  byId("notes").replaceChildren();
  byId("count").textContent = "";
  byId("fresh").hidden = true;
  byId("more").hidden = true;
}

// `ways` are what may be tried when nothing is found.
export function showAnswer(answer, asked, wanted, ways) {
  clearState(place);
  document.body.classList.remove("resting");
  const found = answer.results;
  const cards = found.map((hit) => hitCard(hit, { ...asked, page: "", anchor: "" }));
  const firstWeak = found.findIndex((hit) => hit.confidence === "low");
  if (firstWeak > 0) cards.splice(firstWeak, 0, el("li", { class: "divider" }, "Less certain"));
  results.replaceChildren(...cards);
  byId("count").textContent = found.length
    ? `${plural(found.length, "page")} of ${answer.considered.toLocaleString("en")} · ${Math.max(1, Math.round(answer.took_ms))} ms${answer.reranked ? " · reranked" : ""}`
    : "No page found";
  if (!found.length) sayNone(asked, ways);
  else if (answer.nothing_relevant) {
    say(place, "Nothing here is clearly relevant.", "These pages come nearest, in case one of them helps.");
    byId("count").textContent = `Nothing clearly relevant · ${byId("count").textContent}`;
  }
  byId("more").hidden = found.length < wanted || wanted >= MOST || found.length >= answer.considered;
  freshness(answer);
  notes(answer, asked);
}

function sayNone(asked, ways) {
  const filtered = narrowed(asked);
  const button = (run, words) => el("button", { type: "button", on: { click: run } }, words);
  say(place, "Nothing found.", filtered ? "No page passes the filters you chose." : "No page of this wiki holds these words.",
    filtered && button(ways.unfiltered, "Search without filters"),
    !filtered && asked.mode === "keyword" && button(ways.byBoth, "Search by meaning too"));
}

export function showPages(listing, asked, wanted, filtered) {
  clearState(place);
  const pages = listing.pages.slice(0, wanted);
  document.body.classList.toggle("resting", !filtered);
  results.replaceChildren(...pages.map((page) => pageCard(page, { ...asked, page: "", anchor: "" })));
  byId("count").textContent = filtered ? `${plural(listing.total, "page")} with these filters` : pages.length ? "Recently changed" : "";
  if (!pages.length) say(place, filtered ? "No page passes these filters." : "This wiki has no page yet.");
  byId("more").hidden = listing.recent || listing.total <= wanted;
  byId("fresh").hidden = true;
  byId("notes").replaceChildren();
}

// Pages that changed of late; in a quiet wiki, the latest of some.
export async function recent(signal) {
  let found = { pages: [], total: 0 };
  for (const within of [{ since: "14d" }, { since: "90d" }, {}]) {
    found = await get("pages", { limit: 200, ...within }, signal);
    if (found.total >= RECENT) break;
  }
  const latest = [...found.pages].sort((a, b) => String(b.last_updated).localeCompare(String(a.last_updated)));
  return { pages: latest.slice(0, RECENT), total: RECENT, recent: true };
}

async function freshness(answer) {
  const line = byId("fresh");
  line.hidden = !answer.stale;
  if (!answer.stale) return;
  const first = `The index is behind: it stands at ${short(answer.indexed_revision)}`;
  line.textContent = first;
  const behind = await commitsBehind(answer);
  if (behind > 0 && line.textContent === first) line.textContent = `The index is ${plural(behind, "commit")} behind`;
}

function notes(answer, asked) {
  const lines = answer.notes.map((note) => el("p", { class: "note" }, note));
  if (answer.degraded && !lines.length) lines.push(el("p", { class: "note" }, "Something had to be gone around; the answer may be less complete."));
  if (answer.did_you_mean) lines.unshift(meant(answer, asked));
  byId("notes").replaceChildren(...lines);
}

// A word that no page holds was taken for a slip; what was typed can still be searched for.
function meant(answer, asked) {
  const typed = addressOf({ ...asked, q: answer.as_typed, page: "", anchor: "" });
  return el("p", { class: "meant" }, "Showing results for ", el("strong", {}, answer.did_you_mean), ". ", el("a", { href: typed }, `Search for ${answer.query}`));
}

// The card of the page that lies open.
export function mark(path) {
  for (const link of results.querySelectorAll("a[data-page]")) {
    const open = link.dataset.page === path;
    link.closest(".card").classList.toggle("open", open);
    if (open) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
}
