// A message about the last action, shown on the next page.
import { el } from "./dom.js";

const KEY = "wikiholt.flash";

export function leaveMessage(text) { try { sessionStorage.setItem(KEY, text); } catch { /* the next page shows the result */ } }

export function showMessageLeft(main) {
  let text = null;
  try { text = sessionStorage.getItem(KEY); sessionStorage.removeItem(KEY); } catch { /* nothing stored */ }
  if (text) main.prepend(el("p", { class: "note done", role: "status" }, text));
}
