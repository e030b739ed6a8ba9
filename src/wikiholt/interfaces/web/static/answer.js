// The answer above the results: a few sentences of the wiki, each with a link to its line. Only if it is likely, and
// never while the user types.
import { get, getLines } from "./api.js";
import { byId, el, plural, shortRevision, toSentence } from "./dom.js";
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
    const answer = await get("ask", { q: question, after, model: false, ...toFilterParameters(state) }, controller.signal);
    if (running !== controller) return;
    const writing = answer.language_model && answer.closest.length && renderWriting(answer.language_model, { q: question, after, ...toFilterParameters(state) }, controller.signal);
    if (answer.answered && answer.probability >= MIN_PROBABILITY) render(answer, state, Boolean(after), writing);
    else if (after) render({ ...answer, sentences: [] }, state, true, writing);
    else if (writing) { area.replaceChildren(writing); area.hidden = false; }
  } catch { /* The results are there; an answer is an addition. */ }
}

function render(answer, state, isFollowUp, writing) {
  const pages = new Map();
  for (const sentence of answer.sentences) pages.set(sentence.path, [...(pages.get(sentence.path) || []), sentence]);
  const input = el("input", { type: "search", "aria-label": "Ask a follow-up question", placeholder: "Ask a follow-up…", maxlength: "2000", autocomplete: "off" });
  const ask = (event) => {
    event.preventDefault();
    if (input.value.trim()) showAnswer({ ...state, q: input.value }, answer.question);
  };
  area.replaceChildren(el("h2", {}, pages.size ? "From this wiki" : answer.meaning_ready < 1 ? "The closest pages so far" : "This wiki does not say"), isFollowUp && el("p", { class: "place" }, answer.question) || "",
    ...[...pages.values()].map(renderPage), writing || "", el("form", { class: "follow-up", on: { submit: ask } }, input));
  area.hidden = false;
}

const formatSource = (sentence) => `${sentence.file}:${sentence.line}@${shortRevision(sentence.commit)}`;

// A section is named before its first sentence: the sentences below "What not to do" mean the opposite without it.
function renderPage(sentences) {
  const [first] = sentences;
  let section = first.name;
  const lines = sentences.flatMap((sentence) => {
    const before = section;
    section = sentence.heading_path.at(-1) || first.name;
    return [section !== before && el("li", { class: "section" }, section), el("li", {}, el("a", { href: getUrl(sentence), title: formatSource(sentence) }, sentence.text))];
  });
  return el("div", {}, el("ul", {}, lines), el("p", { class: "place" }, el("a", { href: getUrl(first) }, first.name),
    el("span", { class: "source", title: formatSource(first) }, ` · ${first.file.split("/").at(-1)}:${first.line}`)));
}

// The page view at the sentence, which browsers with text fragments mark.
function getUrl(sentence) {
  const fragment = sentence.url.split("#")[1];
  return `read?${new URLSearchParams({ page: sentence.path })}${fragment ? `#${fragment}` : ""}`;
}

// A button, and then what the language model writes: text, never markup. Sentences are shown as they come.
function renderWriting(model, parameters, signal) {
  const section = el("section", { class: "written", "aria-live": "polite" });
  const write = async () => {
    const list = el("ul"), state = el("p", { class: "place" }, "…");
    section.replaceChildren(el("h2", {}, `${model} writes from these pages`), list, state);
    let passages = [];
    try {
      for await (const line of getLines("ask", { ...parameters, stream: true }, signal)) {
        if (line.event === "answer") passages = line.answer.written?.passages || [];
        else if (line.event === "sentence") list.append(renderWritten(line.sentence, passages));
        else state.textContent = describeEnd(line.written);
      }
    } catch (error) { state.textContent = error.name === "AbortError" ? "" : "The language model cannot be used now."; }
  };
  section.append(el("button", { type: "button", on: { click: write } }, `Let ${model} answer`));
  return section;
}

function renderWritten(sentence, passages) {
  const citations = sentence.citations.map((number) => {
    const passage = passages[number - 1];
    return passage ? [" ", el("a", { href: getUrl(passage), title: `${passage.file}:${passage.line}` }, `[${number}]`)] : ` [${number}]`;
  });
  return el("li", {}, el(sentence.supported ? "span" : "s", {}, sentence.text), citations,
    !sentence.supported && el("span", { class: "fault" }, ` Not supported: ${sentence.reason}.`));
}

function describeEnd(written) {
  if (!written) return "Nothing relevant was found.";
  const supported = written.sentences.filter((sentence) => sentence.supported).length;
  const count = written.sentences.length ? `${supported} of ${plural(written.sentences.length, "sentence")} supported by the cited passages.` : "";
  return [count, written.note && `${toSentence(written.note)}`].filter(Boolean).join(" ");
}
