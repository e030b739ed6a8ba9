// What the page shows is what its address says: shareable, and the back button works.

const MODES = ["hybrid", "semantic", "keyword"];

export function readAddress() {
  const parameters = new URLSearchParams(location.search);
  const mode = parameters.get("mode");
  return {
    q: (parameters.get("q") || "").slice(0, 2000),
    mode: MODES.includes(mode) ? mode : "hybrid",
    tags: parameters.getAll("tag"),
    categories: parameters.getAll("category"),
    path: parameters.get("path") || "",
    since: /^[0-9]{1,4}[hdw]$/.test(parameters.get("since")) ? parameters.get("since") : "",
    page: parameters.get("page") || "",
    anchor: decoded(location.hash.slice(1)),
  };
}

export function addressOf(state) {
  const parameters = new URLSearchParams();
  if (state.q) parameters.set("q", state.q);
  if (state.mode !== "hybrid") parameters.set("mode", state.mode);
  for (const tag of state.tags) parameters.append("tag", tag);
  for (const category of state.categories) parameters.append("category", category);
  if (state.path) parameters.set("path", state.path);
  if (state.since) parameters.set("since", state.since);
  if (state.page) parameters.set("page", state.page);
  // The slash is legal in a query and easier on the eye.
  const text = parameters.toString().replaceAll("%2F", "/");
  const anchor = state.page && state.anchor ? `#${encodeURIComponent(state.anchor)}` : "";
  return `${location.pathname}${text ? `?${text}` : ""}${anchor}`;
}

// What was narrowed, as parameters of the API, and whether anything was.
export const where = (state) => ({ tag: state.tags, category: state.categories, path: state.path, since: state.since });
export const narrowed = (state) => Boolean(state.tags.length || state.categories.length || state.path || state.since);
export const UNFILTERED = { tags: [], categories: [], path: "", since: "" };

export function writeAddress(state, push) {
  const address = addressOf(state);
  if (address === location.pathname + location.search + location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
}

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
