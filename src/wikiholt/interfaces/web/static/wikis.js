// The start page with several wikis: the wikis that the user may see.
import { get } from "./api.js";
import { byId, el, plural } from "./dom.js";
import { setUpKeyButton } from "./key.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { getStatusLabel } from "./status_label.js";

const PAGE_SIZE = 60;
const MAX_WIKIS_WITH_STATUS = 24;
let wikis = [];
let shown = PAGE_SIZE;

const filterWikis = () => {
  const text = byId("q").value.trim().toLowerCase();
  return wikis.filter((wiki) => wiki.slug.toLowerCase().includes(text));
};

function show() {
  const matches = filterWikis();
  byId("wikis").replaceChildren(...matches.slice(0, shown).map((wiki) => el("li", {},
    el("a", { href: `w/${encodeURIComponent(wiki.slug)}/` },
      el("span", { class: "initial", "aria-hidden": "true" }, Array.from(wiki.slug)[0].toUpperCase()),
      el("span", { class: "name" }, wiki.slug, el("small", {}))))));
  showStatuses();
  byId("more").hidden = matches.length <= shown;
  byId("count").textContent = matches.length === wikis.length ? plural(wikis.length, "wiki") : `${matches.length} of ${plural(wikis.length, "wiki")}`;
}

// Shows the status of each wiki if there are few of them.
async function showStatuses() {
  if (wikis.length > MAX_WIKIS_WITH_STATUS) return;
  for (const link of byId("wikis").querySelectorAll("a")) {
    try {
      const status = await get(new URL("api/v1/status", link.href));
      link.querySelector("small").textContent = `${plural(status.pages, "page")} · ${getStatusLabel(status)[1].toLowerCase()}`;
    } catch { /* The page of the wiki shows the error. */ }
  }
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
  if (wikis.length === 1) { location.replace(`w/${encodeURIComponent(wikis[0].slug)}/`); return; }
  byId("wiki-box").hidden = wikis.length < 8;
  if (!wikis.length) {
    byId("count").textContent = "";
    showMessage(byId("state"), "No wiki to show.", "There is no wiki that you can read without a key.");
    return;
  }
  show();
}

byId("q").addEventListener("input", () => { shown = PAGE_SIZE; show(); });
byId("more").addEventListener("click", () => { shown += 10 * PAGE_SIZE; show(); });
document.addEventListener("keydown", (event) => {
  const focused = document.activeElement;
  if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...byId("wikis").querySelectorAll("a")];
  const index = links.indexOf(focused);
  if (event.key === "/" && focused !== byId("q")) { event.preventDefault(); byId("q").focus(); }
  else if (event.key === "Escape" && focused === byId("q")) { byId("q").value = ""; show(); }
  else if (event.key === "Enter" && focused === byId("q")) links[0]?.click();
  else if (event.key === "ArrowDown" && (focused === byId("q") || index >= 0)) { event.preventDefault(); links[Math.min(index + 1, links.length - 1)]?.focus(); }
  else if (event.key === "ArrowUp" && index >= 0) { event.preventDefault(); (index ? links[index - 1] : byId("q")).focus(); }
});
load();
