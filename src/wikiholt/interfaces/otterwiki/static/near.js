// Beside a page: pages that link to it, and pages that are like it. Where there is no room beside it, below it.
import { encodePath, get } from "./api.js";
import { byId, crumbs, el } from "./dom.js";
import { placeOf } from "./places.js";

const LINKS = 8;
const LIKE = 5;
const SOON = 3000;
const ALIKE = 0.12; // pages less alike than this have hardly more in common than any two pages of a wiki
const near = byId("near");
const beside = document.createComment("what lies near stands here where there is room");
const below = document.querySelector("#column-main .content");
const wide = matchMedia("(min-width: 1201px)");

function panel(title, pages, shown) {
  if (!pages.length) return null;
  // Who is writing does not want to leave.
  const target = document.getElementById("content_editor") && "_blank";
  const item = ({ path, name }) => el("li", {}, el("a", { class: "sidebar-link", href: placeOf(path), title: crumbs(path), target }, name));
  const list = el("ul", { class: "collapse-content" }, pages.slice(0, shown).map(item));
  const rest = pages.length - shown;
  if (rest > 0) {
    const all = () => { list.replaceChildren(...pages.map(item)); list.children[shown].firstChild.focus(); };
    list.append(el("li", {}, el("button", { type: "button", class: "all", on: { click: all } }, `${rest} more`)));
  }
  return el("details", { class: "collapse-panel", open: true }, el("summary", { class: "collapse-header" }, title), list);
}

// What one cannot say is left out: the page itself is there.
const part = (asked) => asked.catch(() => null);

async function fill(again) {
  const page = near.dataset.page;
  const [links, similar] = await Promise.all([part(get(`links/${encodePath(page)}`)), part(get("similar", { path: page, n: 2 * LIKE }))]);
  const similars = similar?.results || [];
  const names = new Map(similars.map((hit) => [hit.path, hit.name]));
  const linking = (links?.linked_from || []).map((path) => ({ path, name: names.get(path) || path.split("/").at(-1) }));
  const like = similars.filter((hit) => hit.score >= ALIKE && !links?.linked_from.includes(hit.path)).slice(0, LIKE);
  const panels = [panel("Pages that link here", linking, LINKS), panel("Related pages", like, LIKE)].filter(Boolean);
  // A page that was saved a moment ago is known a moment later.
  if (!similar && again) setTimeout(fill, SOON, false);
  if (!panels.length) return;
  near.replaceChildren(...panels);
  near.hidden = false;
}

function settle() {
  if (wide.matches || !below) beside.after(near);
  else below.append(near);
}

if (near) {
  near.before(beside);
  settle();
  wide.addEventListener("change", settle);
  fill(true);
}
