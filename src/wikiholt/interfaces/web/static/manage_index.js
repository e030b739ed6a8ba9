// The index of a wiki: status and problems, sync now, and rebuild with an estimate and progress.
import { get, send } from "./api.js";
import { countCommitsBehind } from "./commits_behind.js";
import { openDialog, renderError } from "./dialogs.js";
import { byId, el, formatBytes, formatSeconds, plural, toSentence } from "./dom.js";
import { renderIndexStatus } from "./index_status.js";
import { announce, renderButton, renderHead, renderNote, run } from "./manage_parts.js";
import { clearMessage, showProblem } from "./messages.js";
import { readUrl } from "./page_actions.js";
import { getStatusLabel, hasFailed, isBusy } from "./status_label.js";

const BUSY_INTERVAL_MS = 1000;
const IDLE_INTERVAL_MS = 10000;

class IndexSection {
  constructor(area) {
    this.isSyncing = false;
    this.isRebuilding = false;
    this.timer = 0;
    this.stopped = false;
    this.shown = "";
    this.note = el("div", {});
    this.body = el("div", { class: "status" });
    this.syncButton = renderButton("Sync now", () => this.sync(), "primary");
    this.rebuildButton = renderButton("Rebuild…", () => this.openRebuild());
    area.append(renderHead("Index", this.syncButton, this.rebuildButton), this.note, this.body);
    this.onVisible = () => this.refresh();
    document.addEventListener("visibilitychange", this.onVisible);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  async refresh() {
    clearTimeout(this.timer);
    if (document.hidden || this.stopped) return;
    try {
      const [status, job] = await Promise.all([get("status"), get("reindex/status")]);
      if (this.stopped) return;
      clearMessage(byId("state"));
      await this.render(status, job);
      const isWorking = isBusy(status) || this.isSyncing || this.isRebuilding;
      this.timer = setTimeout(() => this.refresh(), isWorking ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
    } catch (error) {
      if (!this.stopped) showProblem(byId("state"), error, () => this.refresh());
    }
  }

  async render(status, job) {
    this.rebuildButton.disabled = job.status === "in_progress";
    // Elements are replaced only if something changed, so that the focus stays where it is.
    const state = JSON.stringify([status, job.status]);
    if (state !== this.shown) {
      this.shown = state;
      const behind = status.stale && !isBusy(status) ? await countCommitsBehind(status) : 0;
      this.body.replaceChildren(...renderIndexStatus(status, behind, readUrl));
    }
    if (this.isSyncing && !status.waiting && !status.activity) this.finishSync(status);
    if (this.isRebuilding && job.status !== "in_progress") this.finishRebuild(job);
  }

  async sync() {
    await run(this.syncButton, this.note, async () => {
      await send("POST", "wake");
      this.isSyncing = true;
      this.note.replaceChildren(el("p", { class: "hint" }, "Checking the repository…"));
      announce("Checking the repository…");
      this.refresh();
    });
  }

  finishSync(status) {
    this.isSyncing = false;
    // The status below has the error with its hint.
    const text = hasFailed(status) ? "The sync failed. The reason is below." : getStatusLabel(status)[0] === "good" ? "The index is up to date." : "The sync has ended.";
    this.note.replaceChildren(hasFailed(status) ? el("p", { class: "note" }, text) : renderNote(text));
    announce(text);
  }

  openRebuild() {
    const estimate = el("p", { role: "status" }, "Estimating the time…");
    openDialog({
      title: "Rebuild the index?", confirm: "Rebuild",
      content: [el("p", {}, "Every page is read and embedded again. The old index answers until the new one is ready."), estimate],
      run: async () => {
        await send("POST", "reindex");
        this.isRebuilding = true;
        this.note.replaceChildren();
        announce("The index is being rebuilt.");
        this.refresh();
      },
    });
    send("POST", "reindex", undefined, { dry_run: "true" }).then((cost) => {
      estimate.textContent = `${plural(cost.pages, "page")} in ${plural(cost.chunks, "passage")}: about ${formatSeconds(cost.seconds)}, and ${formatBytes(cost.disk_bytes)} of the ${formatBytes(cost.disk_free)} that are free on the disk.`;
    }).catch((error) => estimate.replaceWith(renderError(error)));
  }

  finishRebuild(job) {
    this.isRebuilding = false;
    const text = job.status === "error" ? toSentence(job.error_message || "The rebuild failed") : `The index was rebuilt: ${plural(job.pages_indexed, "page")}, ${plural(job.chunks_created, "passage")}.`;
    this.note.replaceChildren(job.status === "error" ? el("p", { class: "note" }, text) : renderNote(text));
    announce(text);
  }
}

export function showIndex(area) {
  const section = new IndexSection(area);
  section.refresh();
  return () => section.stop();
}
