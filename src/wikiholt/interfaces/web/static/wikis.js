// The start page of a farm: the wikis this visitor may see.
import { get } from "./api.js";
import { byId, el, plural } from "./dom.js";
import { keyButton } from "./key.js";
import { clearState, say, sayProblem } from "./states.js";
import { verdict } from "./verdict.js";

const STEP = 60;
const FEW = 24;
let wikis = [];
let shown = STEP;

const matching = () => {
  const text = byId("q").value.trim().toLowerCase();
  return wikis.filter((wiki) => wiki.slug.toLowerCase().includes(text));
};

function show() {
  const found = matching();
  byId("wikis").replaceChildren(...found.slice(0, shown).map((wiki) => el("li", {},
    el("a", { href: `w/${encodeURIComponent(wiki.slug)}/` },
      el("span", { class: "initial", "aria-hidden": "true" }, Array.from(wiki.slug)[0].toUpperCase()),
      el("span", { class: "name" }, wiki.slug, el("small", {}))))));
  tell();
  byId("more").hidden = found.length <= shown;
  byId("count").textContent = found.length === wikis.length ? plural(wikis.length, "wiki") : `${found.length} of ${plural(wikis.length, "wiki")}`;
}

// A farm of thousands is a list; of a few wikis each says how it stands.
async function tell() {
  if (wikis.length > FEW) return;
  for (const link of byId("wikis").querySelectorAll("a")) {
    try {
      const status = await get(new URL("api/v1/status", link.href));
      link.querySelector("small").textContent = `${plural(status.pages, "page")} · ${verdict(status)[1].toLowerCase()}`;
    } catch { /* The wiki itself will say what is wrong. */ }
  }
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
  if (wikis.length === 1) { location.replace(`w/${encodeURIComponent(wikis[0].slug)}/`); return; }
  byId("wiki-box").hidden = wikis.length < 8;
  if (!wikis.length) {
    byId("count").textContent = "";
    say(byId("state"), "No wiki to show.", "There is none here that you may read without a key.");
    return;
  }
  show();
}

byId("q").addEventListener("input", () => { shown = STEP; show(); });
byId("more").addEventListener("click", () => { shown += 10 * STEP; show(); });
document.addEventListener("keydown", (event) => {
  const at = document.activeElement;
  if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...byId("wikis").querySelectorAll("a")];
  const here = links.indexOf(at);
  if (event.key === "/" && at !== byId("q")) { event.preventDefault(); byId("q").focus(); }
  else if (event.key === "Escape" && at === byId("q")) { byId("q").value = ""; show(); }
  else if (event.key === "Enter" && at === byId("q")) links[0]?.click();
  else if (event.key === "ArrowDown" && (at === byId("q") || here >= 0)) { event.preventDefault(); links[Math.min(here + 1, links.length - 1)]?.focus(); }
  else if (event.key === "ArrowUp" && here >= 0) { event.preventDefault(); (here ? links[here - 1] : byId("q")).focus(); }
});
load();
