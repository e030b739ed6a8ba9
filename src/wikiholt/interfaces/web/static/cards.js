// A hit as a card, a page of a list as a line.
import { crumbs, el, highlighted, when } from "./dom.js";
import { placeOf } from "./places.js";

const CONFIDENCE = { high: "Strong match", medium: "Possible match", low: "Weak match" };
const CHANNELS = { semantic: "meaning", keyword: "words" };

// Where in the page the passage stands. The last folder and the name are not said twice.
function place(hit) {
  const headings = hit.heading_path.filter((heading, at) => at || heading !== hit.name);
  return el("p", { class: "place" }, el("span", { class: "path" }, crumbs(hit.path)),
    headings.map((heading) => [el("span", { class: "turn", "aria-hidden": "true" }, " › "), el("span", {}, heading)]));
}

function meter(confidence) {
  return el("span", { class: `confidence ${confidence}` },
    el("span", { class: "meter", "aria-hidden": "true" }, el("i"), el("i"), el("i")), CONFIDENCE[confidence] || confidence);
}

function facts(hit) {
  const channels = hit.channels.map((channel) => CHANNELS[channel] || channel);
  return el("p", { class: "facts" }, meter(hit.confidence),
    channels.length && el("span", {}, `by ${channels.join(" and ")}`),
    when(hit.last_updated),
    tagList(hit.tags));
}

const tagList = (tags) => (tags?.length ? el("span", { class: "tags" }, tags.slice(0, 4).map((tag) => el("span", { class: "tag" }, tag))) : null);

export function hitCard(hit, state) {
  const href = placeOf(hit.path, hit.anchor, state);
  return el("li", {}, el("article", { class: `card ${hit.confidence}`, "data-page": hit.path },
    el("h2", {}, el("a", { href, "data-page": hit.path, "data-anchor": hit.anchor, lang: hit.language }, hit.name)),
    place(hit),
    el("p", { class: "snippet" }, highlighted(hit.snippet, hit.matches, hit.sentence)),
    facts(hit)));
}

export function pageCard(page, state) {
  const href = placeOf(page.path, "", state);
  return el("li", {}, el("article", { class: "card listed", "data-page": page.path },
    el("h2", {}, el("a", { href, "data-page": page.path, "data-anchor": "" }, page.name)),
    page.path !== page.name && el("p", { class: "place" }, crumbs(page.path)),
    el("p", { class: "facts" }, when(page.last_updated), page.category && el("span", {}, page.category),
      tagList(page.tags))));
}
