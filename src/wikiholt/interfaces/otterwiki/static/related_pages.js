// Shows linking and related pages beside a page, or below it on a narrow screen.
import { encodePath, get } from "./api.js";
import { byId, el, formatPath } from "./dom.js";
import { pageUrl } from "./page_url.js";

const MAX_LINKS = 8;
const MAX_RELATED = 5;
const RETRY_DELAY_MS = 3000;
const MIN_SIMILARITY = 0.12; // below this, two pages have hardly more in common than any two pages of a wiki
const area = byId("related");
const beside = document.createComment("position of related pages on a wide screen");
const below = document.querySelector("#column-main .content");
const wide = matchMedia("(min-width: 1201px)");

function renderPanel(title, pages, limit) {
  if (!pages.length) return null;
  // In the editor, open links in a new tab.
  const target = document.getElementById("content_editor") && "_blank";
  const renderItem = ({ path, name }) => el("li", {}, el("a", { class: "sidebar-link", href: pageUrl(path), title: formatPath(path), target }, name));
  const list = el("ul", { class: "collapse-content" }, pages.slice(0, limit).map(renderItem));
  const rest = pages.length - limit;
  if (rest > 0) {
    const showAll = () => { list.replaceChildren(...pages.map(renderItem)); list.children[limit].firstChild.focus(); };
    list.append(el("li", {}, el("button", { type: "button", class: "all", on: { click: showAll } }, `${rest} more`)));
  }
  return el("details", { class: "collapse-panel", open: true }, el("summary", { class: "collapse-header" }, title), list);
}

// Both lists are optional.
const orNull = (promise) => promise.catch(() => null);

async function showRelated(retry) {
  const page = area.dataset.page;
  const [links, similar] = await Promise.all([orNull(get(`links/${encodePath(page)}`)), orNull(get("similar", { path: page, n: 2 * MAX_RELATED }))]);
  const hits = similar?.results || [];
  const names = new Map(hits.map((hit) => [hit.path, hit.name]));
  const linking = (links?.linked_from || []).map((path) => ({ path, name: names.get(path) || path.split("/").at(-1) }));
  const related = hits.filter((hit) => hit.score >= MIN_SIMILARITY && !links?.linked_from.includes(hit.path)).slice(0, MAX_RELATED);
  const panels = [renderPanel("Pages that link here", linking, MAX_LINKS), renderPanel("Related pages", related, MAX_RELATED)].filter(Boolean);
  // The index does not contain a page yet that was just saved: try once more.
  if (!similar && retry) setTimeout(showRelated, RETRY_DELAY_MS, false);
  if (!panels.length) return;
  area.replaceChildren(...panels);
  area.hidden = false;
}

function placePanels() {
  if (wide.matches || !below) beside.after(area);
  else below.append(area);
}

if (area) {
  area.before(beside);
  placePanels();
  wide.addEventListener("change", placePanels);
  showRelated(true);
}
