// The cards of search hits and of listed pages.
import { el, formatPath, getCategory, renderHighlights, renderTime, shortRevision } from "./dom.js";
import { pageUrl } from "./page_url.js";

const CONFIDENCE = { high: "Strong match", medium: "Possible match", low: "Weak match", unknown: "Not rated yet" };
const CHANNELS = { semantic: "meaning", keyword: "words" };
const FRAGMENT_WORDS = 6;
const LIST = new Intl.ListFormat("en-GB");

// The hits of each page, in the order of its best hit; each has another heading.
export function groupByPage(hits) {
  const pages = new Map();
  for (const hit of hits) {
    const name = `${hit.wiki || ""}/${hit.path}`;
    if (!pages.has(name)) pages.set(name, [hit]);
    else if (pages.get(name).every((other) => other.anchor !== hit.anchor)) pages.get(name).push(hit);
  }
  return [...pages.values()];
}

const renderHeading = (hit) => {
  const last = hit.heading_path.length - 1;
  return renderHighlights(hit.heading_path[last], hit.heading_matches?.[last] || []);
};

// The folder of the page and the heading of the passage, without repeating the name of the page. Where several pages
// have the same name, the file tells them apart.
function renderLocation(hit, label, isRepeated) {
  const folder = isRepeated ? hit.path : hit.path.split("/").slice(0, -1).join("/");
  const hasHeading = hit.heading_path.length && hit.heading_path.at(-1) !== hit.name;
  const parts = [label && el("span", { class: "wiki-label" }, label), folder && el("span", { class: "path" }, formatPath(folder)),
    hasHeading && el("span", {}, renderHeading(hit))].filter(Boolean);
  return parts.length ? el("p", { class: "place" }, parts.map((part, index) => [index ? el("span", { class: "turn", "aria-hidden": "true" }, " › ") : null, part])) : null;
}

function renderConfidence(confidence) {
  return el("span", { class: `confidence ${confidence}` },
    el("span", { class: "meter", "aria-hidden": "true" }, el("i"), el("i"), el("i")), CONFIDENCE[confidence] || confidence);
}

function renderFacts(hit) {
  const channels = hit.channels.map((channel) => CHANNELS[channel] || channel);
  return el("p", { class: "facts" }, renderConfidence(hit.confidence),
    channels.length && el("span", {}, `by ${LIST.format(channels)}`),
    renderTime(hit.last_updated),
    renderTags(hit.tags));
}

const renderTags = (tags) => (tags?.length ? el("span", { class: "tags" }, tags.slice(0, 4).map((tag) => el("span", { class: "tag" }, tag))) : null);

// The first words of the sentence that matches best, by which a browser finds the passage on the page.
function getPassageText(hit) {
  const [start, end] = hit.sentence || [0, 0];
  const words = Array.from(hit.snippet).slice(start, end).join("").replaceAll("…", " ").split(/\s+/).filter(Boolean);
  return words.length > 2 ? words.slice(0, FRAGMENT_WORDS).join(" ") : "";
}

// A page of the past that was removed cannot be opened.
const isRemoved = (hit) => hit.now?.path === null;

const renderLink = (hit, href, ...children) => isRemoved(hit) ? el("span", { lang: hit.language }, children) :
  el("a", { href, "data-page": hit.path, "data-anchor": hit.anchor, "data-text": getPassageText(hit), lang: hit.language }, children);

const renderTitle = (hit, href) => el("h2", {}, renderLink(hit, href, renderHighlights(hit.name, hit.name_matches || [])));

// The other pages with nearly the same passage.
function renderAlsoOn(hit, getUrl) {
  const pages = hit.also_on || [];
  return pages.length ? el("details", { class: "also-on" }, el("summary", {}, `Also on ${pages.length} page${pages.length > 1 ? "s" : ""}`),
    el("ul", {}, pages.map((page) => el("li", {}, el("a", { href: getUrl({ ...hit, ...page, anchor: "" }), "data-page": page.path, "data-anchor": "" }, formatPath(page.path)))))) : null;
}

// What became of a page of the past.
function renderNow({ now }) {
  if (!now) return null;
  if (now.path !== null) return el("p", { class: "now" }, "Changed since");
  if (!now.removed) return el("p", { class: "now removed" }, "The latest commit does not have this page");
  const { author, date, message, revision } = now.removed;
  return el("p", { class: "now removed", title: `${shortRevision(revision)}: ${message.split("\n")[0]}` }, "Removed ", renderTime(date), ` by ${author}`);
}

// `more` are other passages of the page. `label` is the name of its wiki, and `getUrl` makes the address of a passage.
export function renderHit(hit, state, more = [], { label = "", isRepeated = false, getUrl = (other) => pageUrl(other.path, other.anchor, state) } = {}) {
  const sections = more.filter((other) => other.heading_path.length);
  return el("li", {}, el("div", { class: `card ${hit.confidence}`, "data-page": hit.path },
    renderTitle(hit, getUrl(hit)), renderLocation(hit, label, isRepeated),
    el("p", { class: "snippet" }, renderHighlights(hit.snippet, hit.matches, hit.sentence)),
    sections.length ? el("ul", { class: "sections", "aria-label": `More in ${hit.name}` }, sections.map((other) => el("li", {}, renderLink(other, getUrl(other), renderHeading(other))))) : null,
    renderAlsoOn(hit, getUrl), renderNow(hit), renderFacts(hit)));
}

// A hit that is probably no answer: one line.
export function renderWeakHit(hit, state, more = [], { label = "", isRepeated = false, getUrl = (other) => pageUrl(other.path, other.anchor, state) } = {}) {
  return el("li", {}, el("div", { class: `card folded ${hit.confidence}`, "data-page": hit.path }, renderTitle(hit, getUrl(hit)), renderLocation(hit, label, isRepeated), renderNow(hit)));
}

export function renderPage(page, state) {
  const href = pageUrl(page.path, "", state);
  return el("li", {}, el("div", { class: "card listed", "data-page": page.path },
    el("h2", {}, el("a", { href, "data-page": page.path, "data-anchor": "" }, page.name)),
    page.path !== page.name && el("p", { class: "place" }, formatPath(page.path)),
    el("p", { class: "facts" }, renderTime(page.last_updated), getCategory(page) && el("span", {}, getCategory(page)))));
}
