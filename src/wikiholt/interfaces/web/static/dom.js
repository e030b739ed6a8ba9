// Elements made from data. Text is only ever set as text.

export const byId = (name) => document.getElementById(`app.${name}`);

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    else if (name === "value" || name === "checked") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
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

// Offsets count characters as the server does (code points), not as JavaScript does (UTF-16 units).
export function highlighted(text, matches, sentence) {
  const characters = Array.from(text);
  const [start, end] = sentence || [0, 0];
  if (!sentence || start < 0 || end <= start || end > characters.length) return marked(characters, matches, 0, characters.length);
  return [...marked(characters, matches, 0, start), el("span", { class: "closest" }, marked(characters, matches, start, end)),
    ...marked(characters, matches, end, characters.length)];
}

function marked(characters, matches, from, to) {
  const parts = [];
  let at = from;
  for (const [start, end] of matches) {
    const first = Math.max(start, at), last = Math.min(end, to);
    if (first >= last) continue;
    if (first > at) parts.push(characters.slice(at, first).join(""));
    parts.push(el("mark", {}, characters.slice(first, last).join("")));
    at = last;
  }
  parts.push(characters.slice(at, to).join(""));
  return parts;
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

const UNITS = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];
export function ago(moment) {
  const seconds = (Date.now() - new Date(moment).getTime()) / 1000;
  if (!Number.isFinite(seconds)) return "";
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  for (const [unit, size] of UNITS) if (Math.abs(seconds) >= size) return words.format(-Math.round(seconds / size), unit);
  return "just now";
}

export function when(moment) {
  if (!moment) return null;
  return el("time", { datetime: moment, title: new Date(moment).toLocaleString() }, ago(moment));
}

export const short = (revision) => (revision ? revision.slice(0, 10) : "none");

export const bytes = (count) => {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) { count /= 1000; at += 1; }
  return `${at && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
};

export const crumbs = (path) => path.split("/").join(" / ");

export const sentence = (text) => {
  const trimmed = text.trim();
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…:]$/.test(first) ? first : `${first}.`;
};
