// Shortcuts of every page: Ctrl-K or ⌘K goes to the search box, "?" shows all shortcuts.
import { byId } from "./dom.js";

const isTyping = () => document.activeElement.matches("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]");

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
    else if (!command && event.key === "?" && !isTyping()) { event.preventDefault(); import("./shortcut_list.js").then((list) => list.showShortcuts()); }
  });
}
