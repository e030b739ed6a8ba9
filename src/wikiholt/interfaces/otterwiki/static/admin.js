// The admin page: index status, refreshed while it is visible, and reindex.
import { get, post } from "./api.js";
import { countCommitsBehind } from "./commits_behind.js";
import { byId, el, formatBytes, formatSeconds, plural, renderTime, toSentence } from "./dom.js";
import { renderIndexStatus } from "./index_status.js";
import { clearMessage, showProblem } from "./messages.js";
import { getStatusLabel, isBusy } from "./status_label.js";

const BUSY_INTERVAL_MS = 1000;
const IDLE_INTERVAL_MS = 10000;
const button = byId("reindex");
let timer = 0;
let requested = false;

const showJob = (...nodes) => byId("job").replaceChildren(...nodes.filter(Boolean));
const renderLine = (text, kind = "hint") => el("p", { class: kind }, text);

async function render(status, job) {
  const building = job.status === "in_progress";
  byId("status").replaceChildren(...renderIndexStatus(status, status.stale && !isBusy(status) ? await countCommitsBehind(status) : 0));
  byId("rebuild").hidden = false;
  button.disabled = building;
  if (byId("count").textContent !== getStatusLabel(status)[1]) byId("count").textContent = getStatusLabel(status)[1];
  if (building) showJob(renderLine(job.pages_total ? `Rebuilding: ${job.pages_indexed.toLocaleString("en")} of ${plural(job.pages_total, "page")}.` : "Rebuilding…"));
  else if (job.status === "error") showJob(renderLine(toSentence(job.error_message || "The reindex failed."), "note"));
  else if (requested && job.status === "complete") showJob(el("p", { class: "hint" }, `Rebuilt: ${plural(job.pages_indexed, "page")}, ${plural(job.chunks_created, "passage")}, `, renderTime(job.completed_at), "."));
  return building;
}

async function refresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const [status, job] = await Promise.all([get("status"), get("reindex/status")]);
    clearMessage(byId("state"));
    const building = await render(status, job);
    timer = setTimeout(refresh, building || isBusy(status) ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
  } catch (error) {
    byId("status").replaceChildren();
    byId("rebuild").hidden = true;
    showProblem(byId("state"), error, refresh);
  }
}

async function showEstimate() {
  showJob(renderLine("Estimating…"));
  try {
    const estimate = await post("reindex", { dry_run: "true" });
    showJob(renderLine(`${plural(estimate.pages, "page")} in ${plural(estimate.chunks, "passage")}: about ${formatSeconds(estimate.seconds)}, and ${formatBytes(estimate.disk_bytes)} of the ${formatBytes(estimate.disk_free)} free on the disk.`));
  } catch (error) {
    showJob(renderLine(`${toSentence(error.message)} ${error.hint}`, "note"));
  }
}

async function rebuild() {
  button.disabled = true;
  requested = true;
  showJob(renderLine("Started."));
  try {
    await post("reindex");
  } catch (error) {
    showJob(renderLine(`${toSentence(error.message)} ${error.hint}`, "note"));
    button.disabled = false;
    return;
  }
  refresh();
}

byId("estimate").addEventListener("click", showEstimate);
button.addEventListener("click", rebuild);
document.addEventListener("visibilitychange", refresh);
refresh();
