// Parts that all sections of the administration share.
import { renderError } from "./dialogs.js";
import { byId, el } from "./dom.js";

export const renderHead = (title, ...actions) => el("div", { class: "section-head" }, el("h2", {}, title), el("div", { class: "actions" }, actions));

export const renderButton = (text, click, kind = "") => el("button", { type: "button", class: kind || null, on: { click } }, text);

// One entry of a list: its name with facts below it, and what can be done with it.
export const renderRecord = (name, facts, ...actions) => el("li", {}, el("div", { class: "record" }, el("p", { class: "name" }, name), el("p", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", {}, fact)))), el("div", { class: "actions" }, actions));

export const renderNote = (...text) => el("p", { class: "note done" }, text);

export const announce = (text) => { byId("count").textContent = text; };

// Runs an action of a button: disables the button meanwhile, and shows an error in `area`.
export async function run(button, area, action) {
  button.disabled = true;
  area.replaceChildren();
  try { await action(); } catch (error) { area.replaceChildren(renderError(error)); }
  button.disabled = false;
}
