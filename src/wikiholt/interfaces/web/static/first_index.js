// A wiki without an index: shows the progress of the first sync, or why there is nothing to search. Asks less and less often.
import { get } from "./api.js";
import { byId, el, toSentence } from "./dom.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { renderProgress } from "./status_label.js";

const FIRST_INDEX_CODES = ["index-missing", "nothing-indexed", "no-commits", "no-pages-yet"];
const FIRST_DELAY_MS = 1500;
const MAX_DELAY_MS = 60000;
let round = 0;

export function showFirstIndexing(problem, retry) {
  const current = ++round;
  if (FIRST_INDEX_CODES.includes(problem.code)) follow(current, retry, FIRST_DELAY_MS);
  else showProblem(byId("state"), problem, retry);
}

async function follow(current, retry, delay) {
  let status;
  try { status = await get("status"); } catch (error) { if (current === round) showProblem(byId("state"), error, retry); return; }
  if (current !== round) return;
  if (status.pages > 0) { retry(); return; }
  const isBusy = Boolean(status.activity);
  if (isBusy) showProgress(status); else showEmpty(status, retry);
  // A sync that makes progress is followed closely; an empty wiki may stay empty for long.
  const next = isBusy ? FIRST_DELAY_MS : Math.min(delay * 2, MAX_DELAY_MS);
  const wait = () => { if (current === round) { if (document.hidden) setTimeout(wait, next); else follow(current, retry, next); } };
  setTimeout(wait, isBusy ? FIRST_DELAY_MS : delay);
}

function showProgress(status) {
  const area = byId("state");
  const bar = renderProgress(status.activity);
  const shown = area.querySelector(".first-index");
  if (shown) { shown.lastElementChild.replaceWith(bar); return; }
  clearMessage(area);
  area.append(el("div", { class: "message first-index" }, el("p", { class: "title", role: "alert" }, "This wiki is being indexed for the first time."),
    el("p", {}, "Results appear here automatically."), bar));
}

function showEmpty(status, retry) {
  const area = byId("state");
  if (area.querySelector(".empty-wiki")) return;
  const reason = status.error ? [toSentence(status.error.message), status.error.hint && toSentence(status.error.hint)].filter(Boolean).join(" ")
    : status.indexed_revision === null ? "The first sync has not started yet." : "The repository contains no Markdown page.";
  showMessage(area, "This wiki has no page yet.", reason, el("p", { class: "actions empty-wiki" },
    el("button", { type: "button", on: { click: retry } }, "Check again"), el("a", { class: "button quiet", href: "status" }, "Status of the index")));
}
