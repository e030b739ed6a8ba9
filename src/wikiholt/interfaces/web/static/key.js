// The dialog for entering a key: opened when the API requires one, or by the user.
import { key } from "./api.js";
import { byId, el } from "./dom.js";

// Replaces the hint of the API, which is for programs.
export const KEY_HINT = "Ask the administrator of this wiki for a key.";

let dialog = null;

export function openKeyDialog(message, hint, done) {
  if (dialog && dialog.open) return;
  const input = el("input", {
    id: "app.key-input", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "app.key-why", placeholder: "wh_…",
  });
  const form = el("form", { method: "dialog", on: { submit: (event) => { event.preventDefault(); finish(input.value.trim()); } } },
    el("h2", { id: "app.key-title" }, "Key"),
    el("p", { id: "app.key-why" }, message || "A key gives access to a wiki that is not public."),
    hint && el("p", { class: "hint" }, hint),
    el("label", { for: "app.key-input" }, "Your key"), input,
    el("p", { class: "hint" }, "The key is stored in this tab only and removed when you close it."),
    el("div", { class: "actions" },
      el("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
      el("button", { class: "primary" }, "Use this key")));
  const finish = (value) => {
    if (value === "") return;
    key.set(value);
    dialog.close();
    done();
  };
  dialog = el("dialog", { id: "app.key-dialog", "aria-labelledby": "app.key-title", on: { close: () => dialog.remove() } }, form);
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}

export const hasAccount = () => Boolean(byId("account") || byId("sign-in"));

// Opens the key dialog. With a sign-in page it is a link to it; nothing for a user who is signed in.
export function renderKeyButton(message, hint, done) {
  if (hasAccount()) return byId("sign-in") ? el("a", { class: "button primary", href: byId("sign-in").href }, "Sign in") : "";
  return el("button", { type: "button", class: "primary", on: { click: () => openKeyDialog(message, hint, done) } }, "Enter a key");
}

export function setUpKeyButton(done) {
  const button = byId("key");
  button.hidden = hasAccount() && !key.get();
  button.classList.toggle("used", Boolean(key.get()));
  button.lastChild.textContent = key.get() ? "Sign out" : "Use a key";
  button.title = key.get() ? "Sign out: this tab forgets its key" : "A key gives access to wikis that are not public";
  button.onclick = key.get() ? () => { key.forget(); done(); setUpKeyButton(done); } : () => openKeyDialog("", "", done);
}
