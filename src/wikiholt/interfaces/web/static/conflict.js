// The page was changed, deleted or created by someone else while the user wrote. Both texts stay visible until the user chooses.
import { openDialog } from "./dialogs.js";
import { el, renderTime } from "./dom.js";

export function hideConflict(area) {
  area.hidden = true;
  area.replaceChildren();
}

function confirmDiscard(discard) {
  openDialog({ title: "Discard your text?", confirm: "Discard my text", danger: true, content: el("p", {}, "Your text is not saved anywhere else."), run: discard });
}

function renderReason(other, wasNew) {
  if (!other) return ["This page was deleted while you edited it", el("p", {}, "Your text is still here.")];
  const author = other.last_commit && el("p", {}, `${other.last_commit.author} saved it `, renderTime(other.last_commit.date), other.last_commit.message ? `: “${other.last_commit.message.split("\n")[0]}”` : "", ". Your text is still here.");
  return [wasNew ? "A page with this path exists already" : "This page was changed while you edited it", author];
}

// `other` is the current page, null if it was deleted. `save(revision)` saves the user's text over it.
export function showConflict(area, { other, changes, wasNew, save, discard }) {
  const [title, reason] = renderReason(other, wasNew);
  const overwrite = () => save(other ? other.revision : "");
  area.replaceChildren(
    el("h2", {}, title), reason || "",
    ...(other ? [el("h3", {}, "From the other version to yours"), ...changes.childNodes,
      el("details", {}, el("summary", {}, "The other version"), el("pre", { tabindex: "0" }, other.content))] : []),
    el("p", { class: "hint" }, other ? "You can also take over parts of the other version below, and then save your text." : ""),
    el("div", { class: "actions" },
      el("button", { type: "button", class: "primary", on: { click: overwrite } }, other ? "Save my text instead" : "Create it again with my text"),
      el("button", { type: "button", on: { click: () => confirmDiscard(discard) } }, other ? "Use the other version" : "Discard my text")));
  area.hidden = false;
  area.focus();
  area.scrollIntoView({ block: "start" });
}
