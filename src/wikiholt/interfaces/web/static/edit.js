// The editor: write a page with preview and changes, and save it. Text that is not saved is never dropped silently.
import { loadAccess, showAccessLinks } from "./access.js";
import { encodePath, get, send } from "./api.js";
import { hideConflict, showConflict } from "./conflict.js";
import { renderError } from "./dialogs.js";
import { byId, el, formatPath } from "./dom.js";
import { forgetDraft, keepDraft, readDraft } from "./drafts.js";
import { leaveMessage } from "./flash.js";
import { renderKeyButton, setUpKeyButton } from "./key.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { editUrl, readUrl } from "./page_actions.js";
import { SimilarPages } from "./similar_pages.js";
import { loadImages, parseHtml, showDiagrams } from "./trusted_html.js";

const requested = new URLSearchParams(location.search).get("page") || "";
const text = byId("text");
const similar = new SimilarPages(byId("similar"));
// `revision` is that of the text which the user started from; empty for a new page.
const page = { path: requested, saved: "", revision: "", other: "" };
let isSaving = false;

const isLocal = () => /^(localhost|127\..*|\[::1\])$/.test(location.hostname);
const isNew = () => !page.revision;
// A textarea normalizes line ends; those of the page are kept.
const toText = (saved) => saved.replace(/\r\n?/g, "\n");
const getText = () => (page.saved.includes("\r\n") ? text.value.replaceAll("\n", "\r\n") : text.value);
const isChanged = () => text.value !== toText(page.saved) || (isNew() && Boolean(byId("path").value) && byId("path").value !== requested);
const getPath = () => (isNew() ? byId("path").value.trim().replace(/^\/+|\/+$/g, "") : page.path);
const announce = (message) => { byId("count").textContent = message; };

async function load() {
  setUpKeyButton(load);
  showAccessLinks();
  if (isChanged()) return;
  clearMessage(byId("state"));
  const access = await loadAccess();
  if (!access.writable) { showNoAccess(access); return; }
  try {
    if (requested) setSaved(await get(`pages/${encodePath(requested)}`));
  } catch (error) {
    if (error.status !== 404) { showProblem(byId("state"), error, load); return; }
  }
  start();
}

function showNoAccess(access) {
  byId("editor").hidden = true;
  const isMirror = ["write", "admin"].includes(access.scope);
  const reason = isMirror ? "It is a mirror of a remote repository. Change the pages there." : `You need a key with the scope write.${isLocal() ? " On this machine, the command wikiholt open signs you in without one." : ""}`;
  showMessage(byId("state"), isMirror ? "This wiki is read-only." : "You cannot write in this wiki.", reason,
    el("p", { class: "actions" }, !isMirror && renderKeyButton("", "", load), el("a", { class: "button", href: requested ? readUrl(requested) : "./" }, "Back")));
}

function setSaved(document) {
  page.path = document.path;
  page.saved = document.content;
  page.revision = document.revision;
}

function start() {
  byId("title").textContent = isNew() ? "New page" : `Edit ${formatPath(page.path)}`;
  byId("path-field").hidden = !isNew();
  byId("path").required = isNew();
  byId("path").value = requested;
  byId("cancel").href = isNew() ? "./" : readUrl(page.path);
  text.value = page.saved;
  const draft = readDraft(page.path);
  if (draft !== null && draft !== text.value) { text.value = draft; showDraftNote(); }
  byId("editor").hidden = false;
  updateSave();
  text.setSelectionRange(0, 0);
  (isNew() && !requested ? byId("path") : text).focus();
}

function showDraftNote() {
  const discard = () => { text.value = page.saved; forgetDraft(page.path); clearMessage(byId("state")); updateSave(); text.focus(); };
  byId("state").replaceChildren(el("div", { class: "note with-action", role: "status" }, el("span", {}, "This is your text that was not saved. "),
    el("button", { type: "button", on: { click: discard } }, isNew() ? "Discard it" : "Discard it and show the saved page")));
}

function updateSave() {
  byId("save").disabled = isSaving || !isChanged() || (isNew() && (!getPath() || !text.value.trim()));
}

let panelRound = 0;

async function showPanel(kind) {
  const panel = byId("panel"), round = ++panelRound;
  // Only the panel that was chosen last is shown, whichever answer comes last.
  const show = (...nodes) => round === panelRound && panel.replaceChildren(...nodes);
  text.hidden = kind !== "write";
  panel.hidden = kind === "write";
  if (kind === "write") { text.focus(); return; }
  panel.setAttribute("aria-label", kind === "preview" ? "Preview" : "Changes");
  panel.replaceChildren(el("p", { class: "hint" }, "Loading…"));
  try {
    const draft = await send("POST", `preview/${encodePath(getPath() || "New page")}`, { content: getText(), revision: page.revision });
    show(...renderPanel(kind, draft));
  } catch (error) {
    show(renderError(error));
  }
}

function renderPanel(kind, draft) {
  const body = parseHtml(kind === "preview" ? draft.html : draft.changes).body;
  loadImages(body);
  showDiagrams(body);
  // A link that replaced this page would leave the text behind.
  for (const link of body.querySelectorAll("a[href]:not([href^='#'])")) {
    const href = link.getAttribute("href");
    if (href.startsWith("?page=")) link.setAttribute("href", `read${href}`);
    link.target = "_blank";
  }
  if (kind === "changes") return [renderChangeNote(draft), ...body.childNodes];
  const cut = draft.cut && el("p", { class: "note" }, "This page is long; the preview shows only its beginning.");
  return [el("article", { class: "page", dir: "auto" }, ...body.childNodes), cut || ""];
}

function renderChangeNote(draft) {
  if (draft.revision === page.revision) return "";
  const what = isNew() ? "A page with this path exists already" : draft.revision ? "This page was changed while you edited it" : "This page was deleted while you edited it";
  return el("p", { class: "note" }, `${what}. Only your own changes are shown here. When you save, you choose between the versions.`);
}

async function save(revision = page.revision) {
  isSaving = true;
  updateSave();
  byId("save-state").replaceChildren();
  announce("Saving…");
  const path = getPath();
  hideConflict(byId("conflict"));
  try {
    if (!(isNew() && !revision && await similar.stops(path, text.value))) await write(path, revision);
    else { byId("save").textContent = "Save anyway"; announce("Similar pages exist. Save again to create this page anyway."); }
  } catch (error) {
    announce("");
    await onFailure(error, path);
  }
  isSaving = false;
  updateSave();
}

async function write(path, revision) {
  const content = getText();
  const body = { content, commit_message: byId("message").value.trim() || null, ...(revision ? { revision } : {}) };
  const answer = await send("PUT", `pages/${encodePath(path)}`, body, {}, revision ? {} : { "If-None-Match": "*" });
  finish(answer.path, content, answer.created ? "The page was created." : "Saved.");
}

function finish(path, content, message) {
  page.saved = content;
  byId("path").value = requested;
  forgetDraft(page.path);
  leaveMessage(message);
  location.assign(readUrl(path));
}

async function onFailure(error, path) {
  if (error.status === 409 && error.code === "revision-mismatch" || error.status === 412 || (error.status === 404 && page.revision)) {
    await openConflict(path);
  } else if (error.status === 401 || error.status === 403) {
    showProblem(byId("save-state"), error, () => save());
  } else {
    byId("save-state").replaceChildren(renderError(error), el("p", { class: "hint" }, "Your text is still here. You can save again."));
  }
}

async function openConflict(path) {
  const mine = getText();
  try {
    const [other, draft] = await Promise.all([get(`pages/${encodePath(path)}`).catch((error) => { if (error.status === 404) return null; throw error; }), send("POST", `preview/${encodePath(path)}`, { content: mine })]);
    // The answer of an earlier attempt may have been lost.
    if (other && other.content === mine) { finish(other.path, mine, "Saved."); return; }
    page.other = other ? other.revision : "";
    showConflict(byId("conflict"), { other, changes: parseHtml(draft.changes).body, wasNew: isNew(), save, discard: () => { forgetDraft(page.path); leavePage(other ? editUrl(other.path) : "./"); } });
    announce("The page was changed by someone else.");
  } catch (error) {
    byId("save-state").replaceChildren(renderError(error), el("p", { class: "hint" }, "Your text is still here. You can save again."));
  }
}

function leavePage(url) {
  page.saved = getText();
  byId("path").value = requested;
  location.assign(url);
}

text.addEventListener("input", () => { keepDraft(page.path, text.value); updateSave(); });
byId("path").addEventListener("input", () => { hideConflict(byId("conflict")); updateSave(); });
byId("path").addEventListener("change", () => similar.show(getPath(), text.value));
byId("editor").addEventListener("submit", (event) => { event.preventDefault(); if (!byId("save").disabled) save(byId("conflict").hidden ? page.revision : page.other); });
for (const radio of document.querySelectorAll("input[name=panel]")) radio.addEventListener("change", () => showPanel(radio.value));
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "s" || byId("editor").hidden) return;
  event.preventDefault();
  byId("editor").requestSubmit();
});
addEventListener("beforeunload", (event) => { if (isChanged()) event.preventDefault(); });
load();
