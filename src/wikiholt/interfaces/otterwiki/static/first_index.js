// Shows the progress of the first indexing of a wiki to users who search, then repeats the search.
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { clearMessage, showProblem } from "./messages.js";
import { renderProgress } from "./status_label.js";

const REFRESH_INTERVAL_MS = 1500;
const FIRST_INDEX_CODES = ["index-missing", "nothing-indexed"];
let round = 0;

export function showFirstIndexing(problem, retry) {
  const current = ++round;
  if (FIRST_INDEX_CODES.includes(problem.code)) follow(current, problem, retry);
  else showProblem(byId("state"), problem, retry);
}

async function follow(current, problem, retry) {
  let status;
  try { status = await get("status"); } catch (error) { if (current === round) showProblem(byId("state"), error, retry); return; }
  if (current !== round) return;
  if (status.error) { showProblem(byId("state"), problem, retry); return; }
  // Search works once a revision is indexed.
  if (status.indexed_revision !== null && !status.activity) { retry(); return; }
  showProgress(status);
  setTimeout(() => { if (current === round) follow(current, problem, retry); }, REFRESH_INTERVAL_MS);
}

function showProgress(status) {
  const area = byId("state");
  const bar = renderProgress(status.activity) || el("p", { class: "hint" }, "Waiting for other wikis.");
  const shown = area.querySelector(".first-index");
  if (shown) { shown.lastElementChild.replaceWith(bar); return; }
  clearMessage(area);
  area.append(el("div", { class: "message first-index" }, el("p", { class: "title", role: "alert" }, "This wiki is being indexed for the first time."),
    el("p", {}, "Results appear here automatically. Until then, use the search by regular expression below."), bar));
}
