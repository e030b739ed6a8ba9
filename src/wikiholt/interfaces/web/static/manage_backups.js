// Backups of the index: take one, list them, restore one.
import { get, send } from "./api.js";
import { openDialog, renderError } from "./dialogs.js";
import { byId, el, formatBytes, plural, renderTime, shortRevision } from "./dom.js";
import { announce, renderButton, renderHead, renderNote, renderRecord, run } from "./manage_parts.js";
import { showProblem } from "./messages.js";

const REASONS = { asked: "on request", scheduled: "scheduled", "before-publishing": "before a rebuild", "before-restoring": "before a restore" };

export function showBackups(area) {
  const note = el("div", {});
  const list = el("ul", { class: "rows records" });
  const report = (text) => { note.replaceChildren(renderNote(text)); announce(text); };
  const load = async () => {
    try {
      const answer = await get("backups");
      list.replaceChildren(...answer.backups.map((backup) => renderBackup(backup, report)));
      if (!answer.total) list.replaceChildren(el("li", { class: "hint" }, "There is no backup yet."));
      if (answer.error) note.replaceChildren(el("p", { class: "hint" }, "The last scheduled backup failed."), renderError(answer.error));
    } catch (error) {
      showProblem(byId("state"), error, load);
    }
  };
  const take = async () => { const backup = await send("POST", "backup"); await load(); report(`The backup was taken: ${plural(backup.pages || 0, "page")}, ${formatBytes(backup.bytes)}.`); };
  const button = renderButton("Back up now", () => run(button, note, take), "primary");
  area.append(renderHead("Backups", button), el("p", { class: "hint" }, "A backup contains the index. The pages themselves are in the repository."), note, list);
  load();
}

function renderBackup(backup, report) {
  const facts = backup.fault ? [el("strong", {}, backup.fault)] : [plural(backup.pages, "page"), ["at ", el("code", {}, shortRevision(backup.revision))]];
  return renderRecord(renderDate(backup.taken_at), [REASONS[backup.reason] || backup.reason, formatBytes(backup.bytes), ...facts],
    backup.fault ? "" : renderButton("Restore…", () => openRestore(backup, report)));
}

const renderDate = (date) => [new Date(date).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }), " ", el("span", { class: "hint" }, renderTime(date))];

function openRestore(backup, report) {
  openDialog({
    title: "Restore this backup?", confirm: "Restore", danger: true,
    content: el("p", {}, `The index is replaced by that of ${new Date(backup.taken_at).toLocaleString("en-GB")} with ${plural(backup.pages, "page")}. Then it is synced with the repository, so pages that changed since are indexed again.`),
    run: async () => { await send("POST", "restore", undefined, { at: backup.taken_at }); report("The backup was restored. A sync brings the index up to date."); },
  });
}
