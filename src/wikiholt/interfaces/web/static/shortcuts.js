// Shortcuts of every page: Ctrl-K or ⌘K goes to the search box, "?" shows all shortcuts.
import { byId, el } from "./dom.js";

const SHORTCUTS = [
  [["/", "Ctrl K"], "Go to the search box"],
  [["↓", "↑"], "Move between the box and the results"],
  [["Home", "End"], "Go to the first or last result"],
  [["Enter"], "Open the result"],
  [["Esc"], "Close the preview, then clear the search"],
  [["?"], "Show these shortcuts"],
];
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export const isTyping = () => document.activeElement.matches("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]");

function showShortcuts() {
  const keys = (names) => names.map((name) => el("kbd", {}, isMac ? name.replace("Ctrl ", "⌘") : name));
  const dialog = el("dialog", { class: "shortcuts", "aria-labelledby": "app.shortcuts-title", on: { close: () => dialog.remove() } },
    el("form", { method: "dialog" }, el("h2", { id: "app.shortcuts-title" }, "Keyboard shortcuts"),
      el("dl", {}, SHORTCUTS.map(([names, text]) => el("div", {}, el("dt", {}, keys(names)), el("dd", {}, text)))),
      el("div", { class: "actions" }, el("button", { class: "primary" }, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}

export function focusSearch() {
  const input = byId("q");
  if (!input || input.closest("[inert]")) return;
  input.focus();
  input.select();
}

export function addGlobalShortcuts(onSearch = focusSearch) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const command = event.ctrlKey || event.metaKey;
    if (command && !event.shiftKey && event.key.toLowerCase() === "k") { event.preventDefault(); onSearch(); }
    else if (!command && event.key === "/" && !isTyping()) { event.preventDefault(); onSearch(); }
    else if (!command && event.key === "?" && !isTyping()) { event.preventDefault(); showShortcuts(); }
  });
}
