// Helpers that create elements and format values. Text is only set as text, never as HTML.

export const byId = (name) => document.getElementById(`app.${name}`);

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

// Offsets count code points, as the server does, not UTF-16 units, as JavaScript does.
export function renderHighlights(text, matches, sentence) {
  const characters = Array.from(text);
  const [start, end] = sentence || [0, 0];
  if (!sentence || start < 0 || end <= start || end > characters.length) return markMatches(characters, matches, 0, characters.length);
  return [...markMatches(characters, matches, 0, start), el("span", { class: "closest" }, markMatches(characters, matches, start, end)),
    ...markMatches(characters, matches, end, characters.length)];
}

function markMatches(characters, matches, from, to) {
  const parts = [];
  let position = from;
  for (const [start, end] of matches) {
    const first = Math.max(start, position), last = Math.min(end, to);
    if (first >= last) continue;
    if (first > position) parts.push(characters.slice(position, first).join(""));
    parts.push(el("mark", {}, characters.slice(first, last).join("")));
    position = last;
  }
  parts.push(characters.slice(position, to).join(""));
  return parts;
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

const UNITS = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];
export function formatAge(date) {
  const seconds = (Date.now() - new Date(date).getTime()) / 1000;
  if (!Number.isFinite(seconds)) return "";
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  for (const [unit, size] of UNITS) if (Math.abs(seconds) >= size) return words.format(-Math.round(seconds / size), unit);
  return "just now";
}

export function renderTime(date) {
  if (!date) return null;
  return el("time", { datetime: date, title: new Date(date).toLocaleString() }, formatAge(date));
}

export const shortRevision = (revision) => (revision ? revision.slice(0, 10) : "none");

export const formatSeconds = (count) => (count < 90 ? plural(Math.max(1, Math.round(count)), "second") : count < 5400 ? plural(Math.round(count / 60), "minute") : plural(Math.round(count / 3600), "hour"));

export const formatBytes = (count) => {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${unit && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
};

// The category of a page; empty if it is the name of its folder, which is shown with the path.
export const getCategory = (page) => ((page.category || "").toLowerCase() === (page.path.split("/").at(-2) || "").toLowerCase() ? "" : page.category);

// The index page of a folder is named like the folder.
export const formatPath = (path) => path.replace(/\/_?index$/, "").split("/").join(" / ");

export const toSentence = (text) => {
  const trimmed = text.trim();
  // The name of a setting stays as it is.
  const first = /^[\w.]+ = /.test(trimmed) ? trimmed : trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…:]$/.test(first) ? first : `${first}.`;
};
