// The first indexing of a wiki, as a reader sees it who searches meanwhile: how far it is; then the search goes on.
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { clearState, sayProblem } from "./states.js";
import { progress } from "./verdict.js";

const PAUSE = 1500;
const FIRST = ["index-missing", "nothing-indexed"];
let round = 0;

export function prepared(problem, again) {
  const mine = ++round;
  if (FIRST.includes(problem.code)) follow(mine, problem, again);
  else sayProblem(byId("state"), problem, again);
}

async function follow(mine, problem, again) {
  let status;
  try { status = await get("status"); } catch (error) { if (mine === round) sayProblem(byId("state"), error, again); return; }
  if (mine !== round) return;
  if (status.error) { sayProblem(byId("state"), problem, again); return; }
  // Once there is a revision the search answers; until then it would say the same again.
  if (status.indexed_revision !== null && !status.activity) { again(); return; }
  show(status);
  setTimeout(() => { if (mine === round) follow(mine, problem, again); }, PAUSE);
}

function show(status) {
  const place = byId("state");
  const bar = progress(status.activity) || el("p", { class: "hint" }, "It is in line.");
  const shown = place.querySelector(".preparing");
  if (shown) { shown.lastElementChild.replaceWith(bar); return; }
  clearState(place);
  place.append(el("div", { class: "said preparing" }, el("p", { class: "title", role: "alert" }, "This wiki is being read for the first time."),
    el("p", {}, "Results appear here by themselves when that is done. Until then the search by regular expression, below, finds words."), bar));
}
