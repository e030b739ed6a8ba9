// The label of an index status, and the progress of its sync.
import { el, formatSeconds, plural } from "./dom.js";

const ACTIVITY_LABELS = { fetch: "Fetching", sync: "Indexing", reindex: "Rebuilding" };

const isDamaged = (status) => Boolean(status.health) && status.health.condition !== "ok";

export const hasFailed = (status) => Boolean(status.error) && status.error.code !== "no-pages-yet";

export function getStatusLabel(status) {
  if (isDamaged(status)) return ["busy", "Being repaired"];
  if (status.activity) return ["busy", ACTIVITY_LABELS[status.activity.kind] || "Working"];
  if (status.error) return hasFailed(status) ? ["bad", "Needs attention"] : ["busy", "No pages yet"];
  if (status.indexed_revision === null) return ["busy", "Waiting for the first sync"];
  return status.stale ? ["late", "Behind the repository"] : ["good", "Up to date"];
}

export function renderStatusLabel(status) {
  const [kind, label] = getStatusLabel(status);
  return el("span", { class: `pill ${kind}` }, label);
}

// An estimate from the time that the finished part took; none at the beginning, when it would be wrong.
function getTimeLeft(since, part, all) {
  const elapsed = (Date.now() - new Date(since).getTime()) / 1000;
  if (!all || part >= all || part / all < 0.05 || !(elapsed > 5)) return "";
  return `, about ${formatSeconds(elapsed * (all - part) / part)} left`;
}

export function renderProgress(activity, name = "progress") {
  if (!activity) return null;
  const done = activity.pages_done || 0;
  const total = activity.pages_total || 0;
  const text = total ? `${done.toLocaleString("en")} of ${plural(total, "page")}` : "Comparing with the repository…";
  // Pages are committed in batches; chunks move the bar in between.
  const [part, all] = activity.chunks_expected ? [activity.chunks_done, activity.chunks_expected] : [done, total];
  return el("div", { class: "progress" }, el("label", { for: `app.${name}` }, text, getTimeLeft(activity.since, part, all)),
    el("progress", all ? { id: `app.${name}`, max: String(all), value: Math.min(part, all) } : { id: `app.${name}` }));
}

export const isBusy = (status) => Boolean(status.activity) || isDamaged(status) || (status.indexed_revision === null && !status.error);
