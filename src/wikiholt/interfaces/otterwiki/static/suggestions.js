// Shows the best results below Otterwiki's search box while the user types: a combobox with a listbox.
import { get, pluginUrl } from "./api.js";
import { el, formatPath, renderHighlights } from "./dom.js";
import { pageUrl } from "./page_url.js";
import { box } from "./search_box.js";

const TYPING_DELAY_MS = 90;
const MAX_SHOWN = 6;
let timer = 0;
let running = null;
let selected = -1;

const list = el("div", { id: "app.list", role: "listbox", "aria-label": "Results" });
const announcement = el("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
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
  announcement.textContent = "";
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
  selected = -1;
}

function move(to) {
  const all = options();
  selected = to;
  all.forEach((option, index) => option.setAttribute("aria-selected", String(index === selected)));
  if (selected < 0) { box.removeAttribute("aria-activedescendant"); return; }
  box.setAttribute("aria-activedescendant", all[selected].id);
  all[selected].scrollIntoView({ block: "nearest" });
}

const renderOption = (index, href, ...children) => el("a", { id: `app.option-${index}`, role: "option", tabindex: "-1", "aria-selected": "false", href }, children);

function renderHitOption(hit, index) {
  const headings = hit.heading_path.filter((heading, position) => position || heading !== hit.name);
  const place = [formatPath(hit.path), ...headings].join(" › ");
  return renderOption(index, pageUrl(hit.path, hit.anchor),
    el("span", { class: "name" }, renderHighlights(hit.name, hit.name_matches)), el("span", { class: "place" }, place), el("span", { class: "snippet" }, renderHighlights(hit.snippet, hit.matches, hit.sentence)));
}

function renderAllResultsOption(query, index, text) {
  const url = pluginUrl("search");
  url.searchParams.set("q", query);
  return renderOption(index, url.href, el("span", { class: "every" }, text));
}

function showResults(answer, query) {
  // Show hits with low confidence only if there are no others; the search page shows all.
  const certain = answer.results.filter((hit) => hit.confidence !== "low");
  const hits = certain.length ? certain : answer.results.slice(0, 3);
  const correction = answer.did_you_mean ? `Showing results for ${answer.did_you_mean}` : "";
  // An unfinished query is not judged, so there is no line about relevance here.
  show(!hits.length && el("p", { class: "hint" }, "No page found."), hits.length && correction && el("p", { class: "hint" }, correction), hits.map(renderHitOption),
    hits.length && renderAllResultsOption(query, hits.length, "All results"));
  announcement.textContent = hits.length ? `${correction} ${hits.length} ${hits.length === 1 ? "page" : "pages"}, use the arrow keys` : "No page found";
}

async function search() {
  const query = box.value;
  running?.abort();
  if (!query.trim()) { hide(); return; }
  const controller = new AbortController();
  running = controller;
  try {
    const answer = await get("search", { q: query, n: MAX_SHOWN, rerank: false }, controller.signal);
    if (running === controller && document.activeElement === box) showResults(answer, query);
  } catch (error) {
    if (error.name === "AbortError" || running !== controller) return;
    const isIndexing = error.code === "index-missing" || error.code === "nothing-indexed";
    show(el("p", { class: "hint" }, isIndexing ? "This wiki is being indexed for the first time; try again in a moment." : error.message));
    announcement.textContent = list.textContent;
  }
}

function onKeyDown(event) {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const count = options().length;
  if (event.key === "Escape" && !panel.hidden) { event.preventDefault(); hide(); }
  else if (event.key === "ArrowDown" && panel.hidden) { event.preventDefault(); search(); }
  else if (event.key === "ArrowDown" && count) { event.preventDefault(); move(selected + 1 < count ? selected + 1 : -1); }
  else if (event.key === "ArrowUp" && count) { event.preventDefault(); move(selected < 0 ? count - 1 : selected - 1); }
  else if (event.key === "Enter" && selected >= 0) { event.preventDefault(); location.assign(options()[selected].href); }
}

if (box) {
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "app.list", "aria-haspopup": "listbox" })) box.setAttribute(name, value);
  box.form.append(panel, announcement);
  const onInput = () => { clearTimeout(timer); timer = setTimeout(search, TYPING_DELAY_MS); };
  box.addEventListener("input", (event) => { if (!event.isComposing) onInput(); });
  box.addEventListener("compositionend", onInput);
  box.addEventListener("keydown", onKeyDown);
  box.addEventListener("blur", hide);
  // A click on a result must not move the focus, because losing it hides the list.
  panel.addEventListener("mousedown", (event) => event.preventDefault());
  addEventListener("pagehide", hide);
}
