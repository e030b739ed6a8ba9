// How the indexes of all wikis stand that this visitor may see; only those on the screen are asked for.
import { get } from "./api.js";
import { byId, el, plural, when } from "./dom.js";
import { keyButton } from "./key.js";
import { clearState, say, sayProblem } from "./states.js";
import { moving, pill, progress } from "./verdict.js";

const STEP = 25;
const AT_ONCE = 4;
const BUSY = 2000;
const CALM = 15000;
let wikis = [];
let shown = STEP;
let round = 0;
let timer = 0;

const inWiki = (slug) => `../../w/${encodeURIComponent(slug)}/api/v1/status`;

function row(wiki) {
  return el("li", { "data-slug": wiki.slug }, el("a", { class: "name", href: `w/${encodeURIComponent(wiki.slug)}/status` }, wiki.slug), el("div", { class: "how" }));
}

function fill(place, status) {
  place.replaceChildren(pill(status),
    el("span", {}, plural(status.pages, "page")),
    status.problems.length ? el("span", {}, plural(status.problems.length, "problem")) : "",
    status.synced_at ? el("span", {}, "synced ", when(status.synced_at)) : "",
    progress(status.activity, `progress-${place.parentElement.dataset.slug}`) || "");
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  const mine = ++round;
  const rows = [...byId("status").children];
  let busy = false;
  const next = async () => {
    for (let li = rows.shift(); li && mine === round; li = rows.shift()) {
      try {
        const status = await get(inWiki(li.dataset.slug));
        busy = busy || moving(status);
        fill(li.lastElementChild, status);
      } catch (error) {
        li.lastElementChild.replaceChildren(el("span", { class: "hint" }, error.message));
        if (error.status === 429) { rows.length = 0; }
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  if (mine === round) timer = setTimeout(look, busy ? BUSY : CALM);
}

function show() {
  const text = byId("q").value.trim().toLowerCase();
  const found = wikis.filter((wiki) => wiki.slug.includes(text));
  const before = new Map([...byId("status").children].map((li) => [li.dataset.slug, li]));
  byId("status").replaceChildren(...found.slice(0, shown).map((wiki) => before.get(wiki.slug) || row(wiki)));
  byId("more").hidden = found.length <= shown;
  byId("count").textContent = found.length === wikis.length ? plural(wikis.length, "wiki") : `${found.length} of ${plural(wikis.length, "wiki")}`;
  look();
}

async function load() {
  keyButton(load);
  clearState(byId("state"));
  try {
    wikis = (await get("wikis", { limit: 10000 })).wikis;
  } catch (error) {
    sayProblem(byId("state"), error, load);
    return;
  }
  byId("wiki-box").hidden = wikis.length < 8;
  if (wikis.length) show();
  else say(byId("state"), "No wiki to show.", "There is none here that you may read without a key.");
}

byId("q").addEventListener("input", () => { shown = STEP; show(); });
byId("more").addEventListener("click", () => { shown += STEP; show(); });
document.addEventListener("visibilitychange", look);
load();
