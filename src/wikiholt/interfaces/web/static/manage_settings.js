// The settings of a wiki, and its removal. For operators.
import { get, send } from "./api.js";
import { openDialog, renderCheckbox, renderError, renderField, renderSelect } from "./dialogs.js";
import { byId, el } from "./dom.js";
import { leaveMessage } from "./flash.js";
import { announce, renderButton, renderHead, renderNote } from "./manage_parts.js";
import { showProblem } from "./messages.js";

export function showSettings(area, access) {
  const load = async () => {
    try {
      const [{ settings }, wiki] = await Promise.all([get("settings"), get(`wikis/${encodeURIComponent(access.wiki)}`)]);
      area.replaceChildren(renderHead("Settings"), el("p", { class: "hint" }, "Source: ", el("code", {}, wiki.source)), renderForm(settings, wiki), renderRemoval(wiki.slug));
    } catch (error) {
      showProblem(byId("state"), error, load);
    }
  };
  load();
}

function renderForm(settings, wiki) {
  const note = el("div", {});
  const inputs = settings.map((setting) => makeInput(setting, wiki.settings[setting.name] || ""));
  const button = el("button", { class: "primary" }, "Save the settings");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try { await save(wiki, inputs, note); } catch (error) { note.replaceChildren(renderError(error)); }
    button.disabled = false;
  };
  return el("form", { class: "settings", on: { submit } }, inputs.map((input) => input.element), note, el("div", { class: "actions" }, button));
}

async function save(wiki, inputs, note) {
  const changed = inputs.filter((input) => input.get() !== input.saved);
  if (!changed.length) { note.replaceChildren(el("p", { class: "hint", role: "status" }, "Nothing was changed.")); return; }
  await send("PATCH", `wikis/${encodeURIComponent(wiki.slug)}`, { settings: Object.fromEntries(changed.map((input) => [input.name, input.get()])) });
  for (const input of changed) input.saved = input.get();
  note.replaceChildren(renderNote("The settings were saved. The index is being updated."));
  announce("The settings were saved.");
}

// A setting with its input. An empty text removes it, so that the default applies.
function makeInput(setting, saved) {
  if (setting.secret) return makeSecretInput(setting, saved);
  const common = { value: saved, placeholder: setting.default, autocomplete: "off", spellcheck: "false" };
  const choices = setting.kind === "text" && setting.choices.length > 0;
  const input = choices ? renderSelect([["", `Default${setting.default ? ` (${setting.default})` : ""}`], ...setting.choices.filter((choice) => choice).map((choice) => [choice, choice])], saved)
    : el(setting.kind === "list" ? "textarea" : "input", { ...common, ...(setting.kind === "list" ? { rows: "2" } : {}), ...(setting.kind === "number" ? { inputmode: "decimal" } : {}) });
  return { name: setting.name, saved, get: () => input.value.trim(), element: renderField(setting.name, input, setting.help.replaceAll("`", "")) };
}

// The value of a secret is not shown: it is kept, replaced or removed.
function makeSecretInput(setting, saved) {
  const input = el("input", { type: "password", autocomplete: "new-password", placeholder: saved ? "Set. Type to replace it." : "" });
  const remove = el("input", { type: "checkbox" });
  const get = () => (remove.checked ? "" : input.value || saved);
  return { name: setting.name, saved, get, element: el("div", {}, renderField(setting.name, input, setting.help), saved && renderCheckbox(`Remove ${setting.name}`, remove)) };
}

function renderRemoval(slug) {
  return el("section", { class: "danger-zone" }, el("h3", {}, "Remove this wiki"),
    el("p", {}, "Deletes its index, its keys and its registration. The pages in the repository stay."), renderButton("Remove the wiki…", () => openRemoval(slug), "danger"));
}

function openRemoval(slug) {
  const input = el("input", { autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  openDialog({
    title: `Remove ${slug}?`, confirm: "Remove the wiki", danger: true,
    content: [el("p", {}, "Its index, query log and keys are deleted. This cannot be undone. The repository is not changed."), renderField(`Type ${slug} to confirm`, input)],
    isReady: () => input.value.trim() === slug,
    run: async () => {
      await send("DELETE", `wikis/${encodeURIComponent(slug)}`);
      leaveMessage(`${slug} was removed.`);
      location.assign(new URL("manage", new URL(document.querySelector(".brand").href)));
    },
  });
}
