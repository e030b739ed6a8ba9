// Pages that the server renders: asks for a key if one is required, then requests the page again with it.
import { showAccessLinks } from "./access.js";
import { fetchPage, key } from "./api.js";
import { byId } from "./dom.js";
import { showMessageLeft } from "./flash.js";
import { hasAccount, openKeyDialog, setUpKeyButton } from "./key.js";
import { addPageActions } from "./page_actions.js";
import { addGlobalShortcuts } from "./shortcuts.js";
import { loadImages, parseHtml } from "./trusted_html.js";

const getMain = () => byId("main");

function setUp() {
  setUpKeyButton(load);
  const form = getMain().querySelector("form[role=search]");
  // With a script, the search page shows results as you type.
  if (form) form.action = "./";
  const contents = getMain().querySelector(".contents details");
  if (contents && matchMedia("(max-width: 63.99rem)").matches) contents.open = false;
  if (!getMain().dataset.status) showMessageLeft(getMain());
  const main = getMain();
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
  if (getMain().dataset.status === "401") openKeyDialog("This key is unknown; it may have expired or been revoked.", "", load);
}

addGlobalShortcuts();
setUp();
if (["401", "403"].includes(getMain().dataset.status)) {
  if (key.get()) load(); else if (!hasAccount()) openKeyDialog("A key is required to read this page.", "", load);
}
