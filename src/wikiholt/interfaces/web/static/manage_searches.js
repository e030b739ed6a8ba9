// The query report: what people search, and what they do not find.
import { get } from "./api.js";
import { renderField, renderSelect } from "./dialogs.js";
import { byId, el, plural, toSentence } from "./dom.js";
import { renderFigure } from "./index_status.js";
import { announce, renderHead } from "./manage_parts.js";
import { clearMessage, showMessage, showProblem } from "./messages.js";
import { readUrl } from "./page_actions.js";

const PERIODS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["0", "All logged searches"]];
const MAX_ROWS = 25;
const number = (count) => count.toLocaleString("en");

export function showSearches(area, access) {
  const body = el("div", { class: "status" });
  const period = renderSelect(PERIODS, "30");
  const load = async () => {
    clearMessage(byId("state"));
    try {
      const report = await get("report", { days: period.value, limit: MAX_ROWS });
      body.replaceChildren(...renderReport(report));
      announce(plural(report.searches, "search", "searches"));
    } catch (error) {
      body.replaceChildren();
      if (error.code === "no-query-log") showNoLog(body, error, access); else showProblem(byId("state"), error, load);
    }
  };
  period.addEventListener("change", load);
  area.append(renderHead("Searches", renderField("Period", period)), body);
  load();
}

function showNoLog(area, error, access) {
  const link = access.operator && el("p", { class: "actions" }, el("a", { class: "button", href: "#settings" }, "Open the settings"));
  showMessage(area, "The searches of this wiki are not logged.", access.operator ? "Set log_queries to true to log them." : toSentence(error.hint || error.message), link || "");
}

function renderReport(report) {
  const share = report.searches ? Math.round(100 * report.without_result_total / report.searches) : 0;
  return [
    !report.logging && el("p", { class: "note" }, "Logging is off. These searches were logged before."),
    el("dl", { class: "figures four" },
      renderFigure("Searches", number(report.searches)),
      renderFigure("Different queries", number(report.queries)),
      renderFigure("Without a result", number(report.without_result_total), report.searches ? `${share} % of the searches` : ""),
      renderFigure("Typical time", `${Math.round(report.p50_ms)} ms`, `95 % within ${Math.round(report.p95_ms)} ms`)),
    renderQueries("Queries without a result", report.without_result, "Every search found something."),
    renderQueries("Frequent queries", report.frequent, "No search yet."),
    renderSlow(report.slow), report.pages && renderNeverFound(report.pages),
  ].filter(Boolean);
}

const renderTable = (title, heads, rows) => el("section", {}, el("h3", {}, title), el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, el("table", {},
  el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at ? "right" : null }, head)))),
  el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: at ? "right" : null }, cell))))))));
const renderQuery = (query) => el("a", { href: `./?q=${encodeURIComponent(query)}` }, query);

function renderQueries(title, list, empty) {
  if (!list.length) return el("section", {}, el("h3", {}, title), el("p", { class: "hint" }, empty));
  return renderTable(title, ["Query", "Searches", "Without a result"], list.map((stats) => [renderQuery(stats.query), number(stats.count), number(stats.without_result)]));
}

const renderSlow = (list) => list.length > 0 && renderTable("Slow queries", ["Query", "Time"], list.slice(0, 10).map((slow) => [renderQuery(slow.query), `${Math.round(slow.ms)} ms`]));

function renderNeverFound(pages) {
  if (!pages.never_found_total) return null;
  return el("section", {}, el("h3", {}, "Pages that no search found"), el("p", { class: "hint" }, `${number(pages.never_found_total)} of ${plural(pages.indexed, "page")}`),
    el("ul", { class: "columns-list" }, pages.never_found.map((path) => el("li", {}, el("a", { href: readUrl(path) }, path)))));
}
