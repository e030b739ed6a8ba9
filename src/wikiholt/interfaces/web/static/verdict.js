// How an index stands, in two words, and how far its sync is.
import { el, plural } from "./dom.js";

const DOING = { fetch: "Fetching", sync: "Indexing", reindex: "Building anew" };

const unwell = (status) => Boolean(status.health) && status.health.condition !== "ok";

export function verdict(status) {
  if (unwell(status)) return ["busy", "Being mended"];
  if (status.activity) return ["busy", DOING[status.activity.kind] || "At work"];
  if (status.error) return ["bad", "Needs attention"];
  if (status.indexed_revision === null) return ["busy", "Waiting to be indexed"];
  return status.stale ? ["late", "Behind the repository"] : ["good", "Up to date"];
}

export function pill(status) {
  const [kind, words] = verdict(status);
  return el("span", { class: `pill ${kind}` }, words);
}

export function progress(activity, name = "progress") {
  if (!activity) return null;
  const done = activity.pages_done || 0;
  const total = activity.pages_total || 0;
  const words = total ? `${done.toLocaleString("en")} of ${plural(total, "page")}` : "Comparing with the repository…";
  return el("div", { class: "progress" }, el("label", { for: `app.${name}` }, words),
    el("progress", total ? { id: `app.${name}`, max: String(total), value: done } : { id: `app.${name}` }));
}

export const moving = (status) => Boolean(status.activity) || unwell(status) || (status.indexed_revision === null && !status.error);
