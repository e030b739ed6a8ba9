// How an index stands, as elements: verdict, work under way, trouble, figures, pages that could not be indexed.
import { bytes, el, plural, sentence, short, when } from "./dom.js";
import { pill, progress } from "./verdict.js";

const figure = (name, value, more) => el("div", { class: "figure" }, el("dt", {}, name), el("dd", {}, value, more && el("span", { class: "more" }, more)));

function trouble(error) {
  return error && el("div", { class: "said problem" }, el("p", { class: "title" }, sentence(error.message)), error.hint && el("p", { class: "hint" }, sentence(error.hint)));
}

function mending(health) {
  if (!health || health.condition === "ok") return null;
  return el("div", { class: "said problem" }, el("p", { class: "title" }, "The index was found damaged and is being mended."),
    health.reason && el("p", { class: "hint" }, sentence(health.reason)));
}

function problems(list) {
  if (!list.length) return null;
  return el("section", {}, el("h2", {}, "Pages that could not be indexed"),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Problems" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "File"), el("th", { scope: "col" }, "Why"))),
      el("tbody", {}, list.slice(0, 500).map((problem) => el("tr", {}, el("td", {}, problem.file), el("td", {}, sentence(problem.detail || problem.reason))))))),
    list.length > 500 && el("p", { class: "hint" }, `And ${list.length - 500} more.`));
}

// `behind` is by how many commits, where that is known.
export function standing(status, behind = 0) {
  return [
    el("p", { class: "verdict" }, pill(status), status.synced_at && el("span", {}, "synced ", when(status.synced_at))),
    progress(status.activity) || "", trouble(status.error) || "", mending(status.health) || "",
    el("dl", { class: "figures" },
      figure("Pages", status.pages.toLocaleString("en")),
      figure("Passages", status.chunks.toLocaleString("en")),
      figure("Problems", status.problems.length.toLocaleString("en")),
      figure("On disk", bytes(status.disk_bytes)),
      status.health && status.health.checked_at ? figure("Checked", when(status.health.checked_at)) : "",
      figure("Indexed revision", el("code", { title: status.indexed_revision || "" }, short(status.indexed_revision))),
      figure("Repository", el("code", { title: status.head_revision || "" }, short(status.head_revision)),
        status.stale && behind > 0 ? `${plural(behind, "commit")} ahead of the index` : "")),
    problems(status.problems) || "",
  ];
}
