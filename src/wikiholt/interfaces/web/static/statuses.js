// The status page of all visible wikis; requests only the wikis that are shown.
import { get } from "./api.js";
import { byId, el, plural, renderTime } from "./dom.js";
import { setUpKeyButton } from "./key.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { isBusy, renderProgress, renderStatusLabel } from "./status_label.js";

const PAGE_SIZE = 25;
const PARALLEL_REQUESTS = 4;
const BUSY_INTERVAL_MS = 2000;
const IDLE_INTERVAL_MS = 15000;
let wikis = [];
let shown = PAGE_SIZE;
let round = 0;
let timer = 0;

const statusUrl = (slug) => `../../w/${encodeURIComponent(slug)}/api/v1/status`;

function renderRow(wiki) {
  return el("li", { "data-slug": wiki.slug }, el("a", { class: "name", href: `w/${encodeURIComponent(wiki.slug)}/status` }, wiki.slug), el("div", { class: "details" }));
}

function showStatus(area, status) {
  area.replaceChildren(renderStatusLabel(status),
    el("span", {}, plural(status.pages, "page")),
    status.problems.length ? el("span", {}, plural(status.problems.length, "problem")) : "",
    status.synced_at ? el("span", {}, "synced ", renderTime(status.synced_at)) : "",
    renderProgress(status.activity, `progress-${area.parentElement.dataset.slug}`) || "");
}

async function refresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  const current = ++round;
  const rows = [...byId("status").children];
  let busy = false;
  const refreshRows = async () => {
    for (let li = rows.shift(); li && current === round; li = rows.shift()) {
      try {
        const status = await get(statusUrl(li.dataset.slug));
        busy = busy || isBusy(status);
        showStatus(li.lastElementChild, status);
      } catch (error) {
        li.lastElementChild.replaceChildren(el("span", { class: "hint" }, error.message));
        if (error.status === 429) { rows.length = 0; }
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_REQUESTS }, refreshRows));
  if (current === round) timer = setTimeout(refresh, busy ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
}

function show() {
  const text = byId("q").value.trim().toLowerCase();
  const matches = wikis.filter((wiki) => wiki.slug.includes(text));
  const rows = new Map([...byId("status").children].map((li) => [li.dataset.slug, li]));
  byId("status").replaceChildren(...matches.slice(0, shown).map((wiki) => rows.get(wiki.slug) || renderRow(wiki)));
  byId("more").hidden = matches.length <= shown;
  byId("count").textContent = matches.length === wikis.length ? plural(wikis.length, "wiki") : `${matches.length} of ${plural(wikis.length, "wiki")}`;
  refresh();
}

async function load() {
  setUpKeyButton(load);
  clearMessage(byId("state"));
  try {
    wikis = (await get("wikis", { limit: 10000 })).wikis;
  } catch (error) {
    showProblem(byId("state"), error, load);
    return;
  }
  byId("wiki-box").hidden = wikis.length < 8;
  if (wikis.length) show();
  else showMessage(byId("state"), "No wiki to show.", "There is no wiki that you can read without a key.");
}

byId("q").addEventListener("input", () => { shown = PAGE_SIZE; show(); });
byId("more").addEventListener("click", () => { shown += PAGE_SIZE; show(); });
document.addEventListener("visibilitychange", refresh);
load();
