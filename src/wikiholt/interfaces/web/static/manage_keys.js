// Keys: create one, which is shown once, and revoke one.
import { get, send } from "./api.js";
import { openDialog, renderField, renderSelect } from "./dialogs.js";
import { byId, el, plural, renderTime } from "./dom.js";
import { announce, renderButton, renderHead, renderRecord } from "./manage_parts.js";
import { showProblem } from "./messages.js";

const MAX_SHOWN = 500;
const SCOPES = [["read", "read: search and read"], ["past", "past: search the past too"], ["write", "write: change pages too"], ["admin", "admin: manage the wiki too"]];

export function showKeys(area, access) {
  const isService = !access.wiki || !document.querySelector(".wiki-name") && access.operator;
  const created = el("div", {});
  const list = el("ul", { class: "rows records" });
  const load = async () => {
    try {
      const { keys } = await get("keys");
      list.replaceChildren(...keys.slice(0, MAX_SHOWN).map((item) => renderKey(item, isService, item.id === access.key, load)));
      if (keys.length > MAX_SHOWN) list.append(el("li", { class: "hint" }, `And ${plural(keys.length - MAX_SHOWN, "older key")}.`));
      if (!keys.length) list.replaceChildren(el("li", { class: "hint" }, "There is no key yet."));
    } catch (error) {
      showProblem(byId("state"), error, load);
    }
  };
  const onCreated = (document) => { created.replaceChildren(renderToken(document)); created.querySelector("input").select(); announce("The key was created. It is shown only once."); load(); };
  area.append(renderHead("Keys", renderButton("Create a key", () => openCreate(isService, onCreated), "primary")),
    el("p", { class: "hint" }, isService ? "An operator key gives access to all wikis. Create keys for one wiki on the page of that wiki." : "A key gives access to this wiki only."), created, list);
  load();
}

function renderKey(item, isService, isOwn, reload) {
  const name = [item.label || "No label", isOwn && el("span", { class: "tag" }, "in use here")];
  const target = isService && (item.wiki ? `wiki ${item.wiki}` : "operator");
  const expiry = item.expires_at ? [item.expired ? "expired " : "expires ", renderTime(item.expires_at)] : "never expires";
  return renderRecord(name, [target, `scope ${item.scope}`, ["created ", renderTime(item.created_at)], expiry, el("code", {}, item.id)],
    renderButton("Revoke…", () => openRevoke(item, isOwn, reload)));
}

function openRevoke(item, isOwn, reload) {
  openDialog({
    title: "Revoke this key?", confirm: "Revoke", danger: true,
    content: [el("p", {}, el("strong", {}, item.label || item.id), " stops working immediately. This cannot be undone."), isOwn && el("p", { class: "note" }, "You are using this key: this page will stop working.")],
    run: async () => { await send("DELETE", `keys/${encodeURIComponent(item.id)}`); announce("The key was revoked."); await reload(); },
  });
}

function openCreate(isService, onCreated) {
  const label = el("input", { maxlength: "200", autocomplete: "off", placeholder: "Who or what uses it" });
  const scope = renderSelect(SCOPES, "read");
  const expiry = el("input", { type: "date", min: new Date(Date.now() + 864e5).toISOString().slice(0, 10) });
  openDialog({
    title: isService ? "Create an operator key" : "Create a key", confirm: "Create",
    content: [renderField("Label", label), isService ? el("p", { class: "note" }, "An operator key can do everything in all wikis.") : renderField("Scope", scope), renderField("Last day", expiry, "Leave it empty for a key that does not expire.")],
    run: async () => {
      const expires_at = expiry.value ? new Date(`${expiry.value}T23:59:59`).toISOString() : null;
      onCreated(await send("POST", "keys", { label: label.value.trim(), expires_at, ...(isService ? {} : { scope: scope.value }) }));
    },
  });
}

function renderToken(document) {
  const input = el("input", { value: document.token, readonly: true, class: "token" });
  const copy = renderButton("Copy", async () => {
    try { await navigator.clipboard.writeText(document.token); copy.textContent = "Copied"; } catch { input.select(); }
  });
  return el("div", { class: "message new-key" }, el("p", { class: "title" }, `New key${document.label ? `: ${document.label}` : ""}`), el("p", { class: "hint" }, "Copy it now. It is not shown again."),
    el("div", { class: "token-row" }, renderField("Key", input), copy));
}
