// The cards of search hits and of listed pages.
import { el, formatPath, renderHighlights, renderTime } from "./dom.js";
import { pageUrl } from "./page_url.js";

const CONFIDENCE = { high: "Strong match", medium: "Possible match", low: "Weak match" };
const CHANNELS = { semantic: "meaning", keyword: "words" };

// The path of the page and the headings above the passage, without repeating the page name.
function renderLocation(hit) {
  const headings = hit.heading_path.filter((heading, index) => index || heading !== hit.name);
  return el("p", { class: "place" }, el("span", { class: "path" }, formatPath(hit.path)),
    headings.map((heading) => [el("span", { class: "turn", "aria-hidden": "true" }, " › "), el("span", {}, heading)]));
}

function renderConfidence(confidence) {
  return el("span", { class: `confidence ${confidence}` },
    el("span", { class: "meter", "aria-hidden": "true" }, el("i"), el("i"), el("i")), CONFIDENCE[confidence] || confidence);
}

function renderFacts(hit) {
  const channels = hit.channels.map((channel) => CHANNELS[channel] || channel);
  return el("p", { class: "facts" }, renderConfidence(hit.confidence),
    channels.length && el("span", {}, `by ${channels.join(" and ")}`),
    renderTime(hit.last_updated),
    renderTags(hit.tags));
}

const renderTags = (tags) => (tags?.length ? el("span", { class: "tags" }, tags.slice(0, 4).map((tag) => el("span", { class: "tag" }, tag))) : null);

export function renderHit(hit, state) {
  const href = pageUrl(hit.path, hit.anchor, state);
  return el("li", {}, el("article", { class: `card ${hit.confidence}`, "data-page": hit.path },
    el("h2", {}, el("a", { href, "data-page": hit.path, "data-anchor": hit.anchor, lang: hit.language }, hit.name)),
    renderLocation(hit),
    el("p", { class: "snippet" }, renderHighlights(hit.snippet, hit.matches, hit.sentence)),
    renderFacts(hit)));
}

export function renderPage(page, state) {
  const href = pageUrl(page.path, "", state);
  return el("li", {}, el("article", { class: "card listed", "data-page": page.path },
    el("h2", {}, el("a", { href, "data-page": page.path, "data-anchor": "" }, page.name)),
    page.path !== page.name && el("p", { class: "place" }, formatPath(page.path)),
    el("p", { class: "facts" }, renderTime(page.last_updated), page.category && el("span", {}, page.category),
      renderTags(page.tags))));
}
