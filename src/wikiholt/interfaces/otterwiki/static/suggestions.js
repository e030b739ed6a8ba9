// Under the search box of every page: the best results as one types. A combobox with a list, for keys and for ears.
import { get, own } from "./api.js";
import { box } from "./box.js";
import { crumbs, el, highlighted } from "./dom.js";
import { placeOf } from "./places.js";

const PAUSE = 90;
const SHOWN = 6;
let timer = 0;
let running = null;
let at = -1;

const list = el("div", { id: "app.list", role: "listbox", "aria-label": "Results" });
const said = el("p", { class: "unseen", role: "status", "aria-live": "polite" });
const panel = el("div", { class: "wikiholt suggestions", hidden: true }, list);
const options = () => [...list.querySelectorAll("[role=option]")];

function show(...children) {
  list.replaceChildren(...children.flat().filter(Boolean));
  panel.hidden = false;
  box.setAttribute("aria-expanded", String(options().length > 0));
  move(-1);
}

function hide() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  panel.hidden = true;
  list.replaceChildren();
  said.textContent = "";
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
  at = -1;
}

function move(to) {
  const all = options();
  at = to;
  all.forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
  if (at < 0) { box.removeAttribute("aria-activedescendant"); return; }
  box.setAttribute("aria-activedescendant", all[at].id);
  all[at].scrollIntoView({ block: "nearest" });
}

const option = (index, href, ...children) => el("a", { id: `app.option-${index}`, role: "option", tabindex: "-1", "aria-selected": "false", href }, children);

function hitOption(hit, index) {
  const headings = hit.heading_path.filter((heading, position) => position || heading !== hit.name);
  const place = [crumbs(hit.path), ...headings].join(" › ");
  return option(index, placeOf(hit.path, hit.anchor),
    el("span", { class: "name" }, hit.name), el("span", { class: "place" }, place), el("span", { class: "snippet" }, highlighted(hit.snippet, hit.matches, hit.sentence)));
}

function everything(query, index, words) {
  const address = own("search");
  address.searchParams.set("q", query);
  return option(index, address.href, el("span", { class: "every" }, words));
}

function showAnswer(answer, query) {
  // The best are enough here: what is less certain is on the search page, unless there is nothing else.
  const certain = answer.results.filter((hit) => hit.confidence !== "low");
  const hits = certain.length ? certain : answer.results.slice(0, 3);
  const meant = answer.did_you_mean ? `Showing results for ${answer.did_you_mean}` : "";
  const preface = answer.nothing_relevant ? "Nothing here is clearly relevant. These come nearest:" : meant;
  show(!hits.length && el("p", { class: "hint" }, "No page found."), hits.length && preface && el("p", { class: "hint" }, preface), hits.map(hitOption),
    hits.length && everything(query, hits.length, "All results"));
  said.textContent = hits.length ? `${preface} ${hits.length} ${hits.length === 1 ? "page" : "pages"}, use the arrow keys` : "No page found";
}

async function search() {
  const query = box.value;
  running?.abort();
  if (!query.trim()) { hide(); return; }
  const mine = new AbortController();
  running = mine;
  try {
    const answer = await get("search", { q: query, n: SHOWN, rerank: false }, mine.signal);
    if (running === mine && document.activeElement === box) showAnswer(answer, query);
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    const soon = error.code === "index-missing" || error.code === "nothing-indexed";
    show(el("p", { class: "hint" }, soon ? "This wiki is being read for the first time; results come in a moment." : error.message));
    said.textContent = list.textContent;
  }
}

function pressed(event) {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const count = options().length;
  if (event.key === "Escape" && !panel.hidden) { event.preventDefault(); hide(); }
  else if (event.key === "ArrowDown" && panel.hidden) { event.preventDefault(); search(); }
  else if (event.key === "ArrowDown" && count) { event.preventDefault(); move(at + 1 < count ? at + 1 : -1); }
  else if (event.key === "ArrowUp" && count) { event.preventDefault(); move(at < 0 ? count - 1 : at - 1); }
  else if (event.key === "Enter" && at >= 0) { event.preventDefault(); location.assign(options()[at].href); }
}

if (box) {
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "app.list", "aria-haspopup": "listbox" })) box.setAttribute(name, value);
  box.form.append(panel, said);
  const typed = () => { clearTimeout(timer); timer = setTimeout(search, PAUSE); };
  box.addEventListener("input", (event) => { if (!event.isComposing) typed(); });
  box.addEventListener("compositionend", typed);
  box.addEventListener("keydown", pressed);
  box.addEventListener("blur", hide);
  // A click on a result must not take the focus first: the list would be gone before the click is.
  panel.addEventListener("mousedown", (event) => event.preventDefault());
  addEventListener("pagehide", hide);
}
