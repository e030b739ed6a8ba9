// The state of the page is in its URL, so it can be shared and the back button works.

const MODES = ["hybrid", "semantic", "keyword"];

export function parseUrl() {
  const parameters = new URLSearchParams(location.search);
  const mode = parameters.get("mode");
  return {
    q: (parameters.get("q") || "").slice(0, 2000),
    mode: MODES.includes(mode) ? mode : "hybrid",
    tags: parameters.getAll("tag"),
    categories: parameters.getAll("category"),
    path: parameters.get("path") || "",
    since: /^[0-9]{1,4}[hdw]$/.test(parameters.get("since")) ? parameters.get("since") : "",
    at: (parameters.get("at") || "").slice(0, 200),
    page: parameters.get("page") || "",
    anchor: decodeSafely(location.hash.slice(1)),
  };
}

export function buildUrl(state) {
  const parameters = new URLSearchParams();
  if (state.q) parameters.set("q", state.q);
  if (state.mode !== "hybrid") parameters.set("mode", state.mode);
  for (const tag of state.tags) parameters.append("tag", tag);
  for (const category of state.categories) parameters.append("category", category);
  if (state.path) parameters.set("path", state.path);
  if (state.since) parameters.set("since", state.since);
  if (state.at) parameters.set("at", state.at);
  if (state.page) parameters.set("page", state.page);
  // A slash is legal in a query and easier to read.
  const text = parameters.toString().replaceAll("%2F", "/");
  const anchor = state.page && state.anchor ? `#${encodeURIComponent(state.anchor)}` : "";
  return `${location.pathname}${text ? `?${text}` : ""}${anchor}`;
}

// The filters as parameters of the API, and whether any filter is set.
export const toFilterParameters = (state) => ({ tag: state.tags, category: state.categories, path: state.path, since: state.since });
export const hasFilters = (state) => Boolean(state.tags.length || state.categories.length || state.path || state.since);
export const NO_FILTERS = { tags: [], categories: [], path: "", since: "" };

export function updateUrl(state, push) {
  const url = buildUrl(state);
  if (url === location.pathname + location.search + location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", url);
}

const decodeSafely = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
