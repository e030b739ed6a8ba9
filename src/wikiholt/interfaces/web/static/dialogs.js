// Dialogs that confirm an action and run it. An error is shown in the dialog, which stays open.
import { el, toSentence } from "./dom.js";

let count = 0;

export const renderError = (problem) => el("div", { class: "message problem", role: "alert" }, el("p", { class: "title" }, toSentence(problem.message)),
  problem.hint && !/Bearer/.test(problem.hint) && el("p", { class: "hint" }, toSentence(problem.hint)));

// A label with its input below it. `hint` describes the input.
export function renderField(label, input, hint = "") {
  input.id ||= `app.field-${++count}`;
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, hint && el("p", { class: "hint", id: `${input.id}-hint` }, hint));
}

export const renderCheckbox = (label, input) => el("label", { class: "check" }, input, el("span", {}, label));

export const renderSelect = (options, value = "") => el("select", {}, options.map(([name, text]) => el("option", { value: name, selected: name === value }, text)));

// Opens a dialog. `run` does the work when the user confirms; the dialog closes when it succeeds.
export function openDialog({ title, content, confirm, danger = false, run, isReady = () => true }) {
  const titleId = `app.dialog-${++count}`;
  const errors = el("div", {});
  const button = el("button", { class: danger ? "danger" : "primary" }, confirm);
  const cancel = el("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel");
  const update = () => { button.disabled = !isReady(); };
  const submit = async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    errors.replaceChildren();
    try { await run(); dialog.close(); } catch (error) { errors.replaceChildren(renderError(error)); update(); }
  };
  const dialog = el("dialog", { class: "form-dialog", "aria-labelledby": titleId, on: { close: () => dialog.remove(), input: update } },
    el("form", { on: { submit } }, el("h2", { id: titleId }, title), content, errors, el("div", { class: "actions" }, cancel, button)));
  document.body.append(dialog);
  update();
  dialog.showModal();
  // A destructive action needs a deliberate step: the focus is on an input, or on "Cancel".
  (dialog.querySelector("input:not([type=checkbox]), select") || (danger ? cancel : button)).focus();
  return { dialog, update };
}
