// The status of an index: label, progress, errors, figures, and pages that could not be indexed.
import { el, formatBytes, plural, renderTime, shortRevision, toSentence } from "./dom.js";
import { renderProgress, renderStatusLabel } from "./status_label.js";

export const renderFigure = (name, value, more) => el("div", { class: "figure" }, el("dt", {}, name), el("dd", {}, value, more && el("span", { class: "more" }, more)));

const renderProblem = (title, hint) => el("div", { class: "message problem" }, el("p", { class: "title" }, toSentence(title)), hint && el("p", { class: "hint" }, toSentence(hint)));

// A table of files, each with a text. `total` counts also those that are not listed.
function renderFiles(title, column, rows, total, getUrl) {
  const renderFile = (file) => (getUrl ? el("a", { href: getUrl(file) }, file) : file);
  if (!rows.length) return "";
  const shown = rows.slice(0, 500);
  return el("section", {}, el("h2", {}, title),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "File"), el("th", { scope: "col" }, column))),
      el("tbody", {}, shown.map(([file, text]) => el("tr", {}, el("td", {}, renderFile(file)), el("td", {}, toSentence(text))))))),
    total > shown.length && el("p", { class: "hint" }, `And ${total - shown.length} more.`));
}

// `behind` is the number of commits by which the index is behind, if known. `getUrl` returns the URL of a file's page.
export function renderIndexStatus(status, behind = 0, getUrl = null) {
  const { error, health } = status;
  return [
    el("p", { class: "verdict" }, renderStatusLabel(status), status.synced_at && el("span", {}, "synced ", renderTime(status.synced_at))),
    renderProgress(status.activity) || "", error ? renderProblem(error.message, error.hint) : "",
    health && health.condition !== "ok" ? renderProblem("The index was damaged and is being repaired.", health.reason) : "",
    status.history_warning ? renderProblem("Dates and former names of pages are incomplete.", status.history_warning) : "",
    el("dl", { class: "figures" },
      renderFigure("Pages", status.pages.toLocaleString("en")),
      renderFigure("Passages", status.chunks.toLocaleString("en")),
      renderFigure("Problems", status.problems.length.toLocaleString("en")),
      renderFigure("On disk", formatBytes(status.disk_bytes)),
      health && health.checked_at ? renderFigure("Checked", renderTime(health.checked_at)) : "",
      renderFigure("Indexed revision", el("code", { title: status.indexed_revision || "" }, shortRevision(status.indexed_revision))),
      renderFigure("Repository", el("code", { title: status.head_revision || "" }, shortRevision(status.head_revision)),
        status.stale && behind > 0 ? `${plural(behind, "commit")} ahead of the index` : "")),
    renderFiles("Pages that could not be indexed", "Reason",
      status.problems.map((problem) => [problem.file, problem.detail || problem.reason]), status.problems.length, getUrl),
    renderFiles("Pages with warnings", "Warning",
      status.warnings.map((page) => [page.file, page.warnings.join("; ")]), status.pages_with_warnings, getUrl),
  ];
}
