// How an index stands, followed while it changes. A hidden tab asks for nothing.
import { get } from "./api.js";
import { byId } from "./dom.js";
import { keyButton } from "./key.js";
import { commitsBehind } from "./lag.js";
import { standing } from "./standing.js";
import { clearState, sayProblem } from "./states.js";
import { moving, verdict } from "./verdict.js";

const BUSY = 1500;
const CALM = 10000;
const place = byId("status");
let timer = 0;

function draw(status, behind) {
  place.replaceChildren(...standing(status, behind));
  const words = verdict(status)[1];
  if (byId("count").textContent !== words) byId("count").textContent = words;
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const status = await get("status");
    clearState(byId("state"));
    draw(status, status.stale && !moving(status) ? await commitsBehind(status) : 0);
    timer = setTimeout(look, moving(status) ? BUSY : CALM);
  } catch (error) {
    place.replaceChildren();
    sayProblem(byId("state"), error, begin);
  }
}

function begin() {
  keyButton(begin);
  look();
}
document.addEventListener("visibilitychange", look);
begin();
