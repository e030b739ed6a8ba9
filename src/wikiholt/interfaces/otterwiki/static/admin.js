// How the index stands, followed while it changes, and building it anew. A hidden tab asks for nothing.
import { get, post } from "./api.js";
import { byId, bytes, el, plural, sentence, when } from "./dom.js";
import { commitsBehind } from "./lag.js";
import { standing } from "./standing.js";
import { clearState, sayProblem } from "./states.js";
import { moving, verdict } from "./verdict.js";

const BUSY = 1000;
const CALM = 10000;
const button = byId("reindex");
let timer = 0;
let asked = false;

const told = (...words) => byId("job").replaceChildren(...words.filter(Boolean));
const line = (text, kind = "hint") => el("p", { class: kind }, text);

async function draw(status, job) {
  const building = job.status === "in_progress";
  byId("status").replaceChildren(...standing(status, status.stale && !moving(status) ? await commitsBehind(status) : 0));
  byId("rebuild").hidden = false;
  button.disabled = building;
  if (byId("count").textContent !== verdict(status)[1]) byId("count").textContent = verdict(status)[1];
  if (building) told(line(job.pages_total ? `Building: ${job.pages_indexed.toLocaleString("en")} of ${plural(job.pages_total, "page")}.` : "Building…"));
  else if (job.status === "error") told(line(sentence(job.error_message || "It could not be built."), "note"));
  else if (asked && job.status === "complete") told(el("p", { class: "hint" }, `Built anew: ${plural(job.pages_indexed, "page")}, ${plural(job.chunks_created, "passage")}, `, when(job.completed_at), "."));
  return building;
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const [status, job] = await Promise.all([get("status"), get("reindex/status")]);
    clearState(byId("state"));
    const building = await draw(status, job);
    timer = setTimeout(look, building || moving(status) ? BUSY : CALM);
  } catch (error) {
    byId("status").replaceChildren();
    byId("rebuild").hidden = true;
    sayProblem(byId("state"), error, look);
  }
}

const seconds = (count) => (count < 90 ? plural(Math.max(1, Math.round(count)), "second") : plural(Math.round(count / 60), "minute"));

async function forecast() {
  told(line("Looking…"));
  try {
    const it = await post("reindex", { dry_run: "true" });
    told(line(`${plural(it.pages, "page")} in ${plural(it.chunks, "passage")}: about ${seconds(it.seconds)}, and ${bytes(it.disk_bytes)} of the ${bytes(it.disk_free)} that are free on the disk.`));
  } catch (error) {
    told(line(`${sentence(error.message)} ${error.hint}`, "note"));
  }
}

async function rebuild() {
  button.disabled = true;
  asked = true;
  told(line("Begun."));
  try {
    await post("reindex");
  } catch (error) {
    told(line(`${sentence(error.message)} ${error.hint}`, "note"));
    button.disabled = false;
    return;
  }
  look();
}

byId("forecast").addEventListener("click", forecast);
button.addEventListener("click", rebuild);
document.addEventListener("visibilitychange", look);
look();
