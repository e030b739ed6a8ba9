// The answer above the results: a few sentences of the wiki, each with a link to its line. Only if it is likely, and
// never while the user types.
import { get } from "./api.js";
import { byId, el, shortRevision } from "./dom.js";
import { toFilterParameters } from "./url_state.js";

const MIN_WORDS = 3;
const MIN_PROBABILITY = 0.5;
const area = byId("answer");
let running = null;
let shownFor = "";

export function clearAnswer() {
  running?.abort();
  shownFor = "";
  area.hidden = true;
  area.replaceChildren();
}

// Asks the query as a question, once; `after` is the question that it follows.
export async function showAnswer(state, after = "") {
  const question = state.q.trim();
  const name = JSON.stringify([question, after, toFilterParameters(state)]);
  if (name === shownFor) return;
  clearAnswer();
  if (state.mode === "keyword" || (!after && question.split(/\s+/).length < MIN_WORDS)) return;
  shownFor = name;
  const controller = new AbortController();
  running = controller;
  try {
    const answer = await get("ask", { q: question, after, ...toFilterParameters(state) }, controller.signal);
    if (running !== controller) return;
    if (answer.answered && answer.probability >= MIN_PROBABILITY) render(answer, state, Boolean(after));
    else if (after) render({ ...answer, sentences: [] }, state, true);
  } catch { /* The results are there; an answer is an addition. */ }
}

function render(answer, state, isFollowUp) {
  const pages = new Map();
  for (const sentence of answer.sentences) pages.set(sentence.path, [...(pages.get(sentence.path) || []), sentence]);
  const input = el("input", { type: "search", "aria-label": "Ask a follow-up question", placeholder: "Ask a follow-up…", maxlength: "2000", autocomplete: "off" });
  const ask = (event) => {
    event.preventDefault();
    if (input.value.trim()) showAnswer({ ...state, q: input.value }, answer.question);
  };
  area.replaceChildren(el("h2", {}, pages.size ? "From this wiki" : answer.meaning_ready < 1 ? "The closest pages so far" : "This wiki does not say"), isFollowUp && el("p", { class: "place" }, answer.question) || "",
    ...[...pages.values()].map(renderPage), el("form", { class: "follow-up", on: { submit: ask } }, input));
  area.hidden = false;
}

function renderPage(sentences) {
  const [first] = sentences;
  const lines = sentences.map((sentence) => el("li", {}, el("a", { href: getUrl(sentence), title: `${sentence.file}:${sentence.line}@${shortRevision(sentence.commit)}` }, sentence.text)));
  const heading = first.heading_path.at(-1);
  return el("div", {}, el("ul", {}, lines), el("p", { class: "place" }, el("a", { href: getUrl(first) }, first.name),
    heading && heading !== first.name ? ` › ${heading}` : "", ` · ${first.file}:${first.line}@${shortRevision(first.commit)}`));
}

// The page view at the sentence, which browsers with text fragments mark.
function getUrl(sentence) {
  const fragment = sentence.url.split("#")[1];
  return `read?${new URLSearchParams({ page: sentence.path })}${fragment ? `#${fragment}` : ""}`;
}
