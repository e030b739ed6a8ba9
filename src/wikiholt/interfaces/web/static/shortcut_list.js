// The list of all keyboard shortcuts, loaded when it is opened.
import { el } from "./dom.js";

const SHORTCUTS = [
  [["/", "Ctrl K"], "Go to the search box"],
  [["↓", "↑"], "Move between the box and the results"],
  [["Home", "End"], "Go to the first or last result"],
  [["Enter"], "Open the result"],
  [["Esc"], "Close the preview, then clear the search"],
  [["?"], "Show these shortcuts"],
];
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export function showShortcuts() {
  const keys = (names) => names.map((name) => el("kbd", {}, isMac ? name.replace("Ctrl ", "⌘") : name));
  const dialog = el("dialog", { class: "shortcuts", "aria-labelledby": "app.shortcuts-title", on: { close: () => dialog.remove() } },
    el("form", { method: "dialog" }, el("h2", { id: "app.shortcuts-title" }, "Keyboard shortcuts"),
      el("dl", {}, SHORTCUTS.map(([names, text]) => el("div", {}, el("dt", {}, keys(names)), el("dd", {}, text)))),
      el("div", { class: "actions" }, el("button", { class: "primary" }, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}
