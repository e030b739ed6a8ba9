// The dialog that asks for a key: when the API wants one, or when the reader wishes to use another.
import { key } from "./api.js";
import { byId, el, sentence } from "./dom.js";

// Said where programs are told to send a key.
export const HOW = "Ask whoever looks after this wiki for one.";

let dialog = null;

export function askForKey(message, hint, done) {
  if (dialog && dialog.open) return;
  const input = el("input", {
    id: "app.key-input", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "app.key-why", placeholder: "wh_…",
  });
  const forget = key.get() && el("button", { type: "button", class: "quiet", on: { click: () => finish(null) } }, "Forget the key");
  const form = el("form", { method: "dialog", on: { submit: (event) => { event.preventDefault(); finish(input.value.trim()); } } },
    el("h2", { id: "app.key-title" }, "Key"),
    el("p", { id: "app.key-why" }, message || "A key opens a wiki that is not public."),
    hint && el("p", { class: "hint" }, hint),
    el("label", { for: "app.key-input" }, "Your key"), input,
    el("p", { class: "hint" }, "It is kept in this tab only and forgotten when you close it."),
    el("div", { class: "actions" }, forget,
      el("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
      el("button", { class: "primary" }, "Use this key")));
  const finish = (value) => {
    if (value === "") return;
    if (value === null) key.forget(); else key.set(value);
    dialog.close();
    done();
  };
  dialog = el("dialog", { id: "app.key-dialog", "aria-labelledby": "app.key-title", on: { close: () => dialog.remove() } }, form);
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}

// What leads past a refusal: a button that asks for a key. Where none was sent, the dialog opens by itself.
export function wayIn(problem, hint, again) {
  const ask = () => askForKey(sentence(problem.message), hint, again);
  if (problem.status === 401) ask();
  return el("button", { type: "button", class: "primary", on: { click: ask } }, "Enter a key");
}

export function keyButton(done) {
  const button = byId("key");
  button.hidden = false;
  button.textContent = key.get() ? "Key in use" : "Key";
  button.onclick = () => askForKey("", "", done);
}
