// The status page of one wiki, refreshed while it is visible.
import { showAccessLinks } from "./access.js";
import { get } from "./api.js";
import { countCommitsBehind } from "./commits_behind.js";
import { byId } from "./dom.js";
import { renderIndexStatus } from "./index_status.js";
import { setUpKeyButton } from "./key.js";
import { clearMessage, showProblem } from "./messages.js";
import { getStatusLabel, isBusy } from "./status_label.js";

const BUSY_INTERVAL_MS = 1500;
const IDLE_INTERVAL_MS = 10000;
const area = byId("status");
let timer = 0;

function render(status, behind) {
  area.replaceChildren(...renderIndexStatus(status, behind));
  const label = getStatusLabel(status)[1];
  if (byId("count").textContent !== label) byId("count").textContent = label;
}

async function refresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const status = await get("status");
    clearMessage(byId("state"));
    render(status, status.stale && !isBusy(status) ? await countCommitsBehind(status) : 0);
    timer = setTimeout(refresh, isBusy(status) ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
  } catch (error) {
    area.replaceChildren();
    showProblem(byId("state"), error, start);
  }
}

function start() {
  setUpKeyButton(start);
  showAccessLinks();
  refresh();
}
document.addEventListener("visibilitychange", refresh);
start();
