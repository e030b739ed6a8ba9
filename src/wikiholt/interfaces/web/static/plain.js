// Pages that the server renders: asks for a key if one is required, then requests the page again with it.
import { showAccessLinks } from "./access.js";
import { fetchPage, key } from "./api.js";
import { byId } from "./dom.js";
import { showMessageLeft } from "./flash.js";
import { KEY_HINT, hasAccount, renderKeyButton, setUpKeyButton } from "./key.js";
import { addPageActions } from "./page_actions.js";
import { addReadingTools } from "./reading_tools.js";
import { addGlobalShortcuts } from "./shortcuts.js";
import { loadImages, parseHtml } from "./trusted_html.js";

const getMain = () => byId("main");
const isRefused = () => ["401", "403"].includes(getMain().dataset.status);

function setUp() {
  setUpKeyButton(load);
  const form = getMain().querySelector("form[role=search]");
  // With a script, the search page shows results as you type.
  if (form) form.action = "./";
  const fold = (name, width) => { const part = getMain().querySelector(`${name} details`); if (part && !matchMedia(`(min-width: ${width})`).matches) part.open = false; };
  fold(".tree", "62rem");
  fold(".contents", "80rem");
  const current = getMain().querySelector(".tree [aria-current]");
  if (current) { const tree = current.closest(".tree"); tree.scrollTop = current.offsetTop - tree.clientHeight / 2; }
  const main = getMain();
  if (!main.dataset.status) showMessageLeft(main.querySelector(".document") || main);
  if (isRefused() && !hasAccount()) main.querySelector(".actions").prepend(renderKeyButton("", KEY_HINT, load));
  addReadingTools(main.querySelector(".document > .page"));
  showAccessLinks().then((access) => addPageActions(main, access));
}

async function load() {
  const answer = await fetchPage(location.href);
  const page = parseHtml(answer);
  loadImages(page);
  document.title = page.title;
  getMain().replaceWith(page.querySelector("main"));
  setUp();
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  if (getMain().dataset.status === "401" && key.get()) getMain().querySelector(".message .title").textContent = "This key is unknown; it may have expired or been revoked.";
}

addGlobalShortcuts();
setUp();
if (isRefused() && key.get()) load();
