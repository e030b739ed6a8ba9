// Filters by category, tag, folder and date. The values are those of the pages that the query finds; the selection is in
// the URL.
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { makeRoving, moveFocus } from "./roving.js";
import { hasFilters, toFilterParameters } from "./url_state.js";

const MAX_SHOWN = 8;
const MAX_EXPANDED = 50;
const MAX_SINGLE_FOLDERS = 4;
const SINCE = { "7d": "Past week", "30d": "Past month", "365d": "Past year" };
const wide = matchMedia("(min-width: 62rem)");

const formatSince = (since) => SINCE[since] || `Past ${since}`;

export class Filters {
  constructor(onChange) {
    this.onChange = onChange;
    this.box = byId("filters");
    this.form = byId("filter-form");
    this.facets = null;
    this.expanded = new Set();
    this.typed = {};
    this.hasPast = false;
    const updateOpen = () => { this.box.open = wide.matches; };
    wide.addEventListener("change", updateOpen);
    updateOpen();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("keydown", (event) => {
      const group = event.target.closest("fieldset");
      if (group) moveFocus(event, group, "input[type=checkbox]");
    });
  }

  // Offers searches of the wiki as it was, to those who may.
  offerPast(isAllowed) {
    this.hasPast = isAllowed;
    if (this.state) this.show(this.state);
  }

  renderPast(state) {
    if (!this.hasPast && !state.at) return [];
    const choose = (event) => this.onChange({ at: event.target.value.trim() });
    const field = el("input", { type: "search", name: "at", "aria-label": "The wiki as it was at", placeholder: "v2.3 or 2025-06-01", maxlength: 200, value: state.at, "data-filter": "at", on: { change: choose } });
    return [el("fieldset", {}, el("legend", {}, "As it was"), field)];
  }

  // Requests the values for a finished query. The same query and filters need no request.
  async update(state) {
    const query = state.q.trim();
    const parameters = { q: query, mode: query && state.mode !== "hybrid" ? state.mode : "", ...toFilterParameters(state) };
    const name = JSON.stringify(parameters);
    if (name === this.loaded) { this.show(state); return; }
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    this.box.setAttribute("aria-busy", "true");
    try {
      const facets = await this.fetchFacets(parameters, controller.signal);
      if (this.running !== controller) return;
      this.facets = facets;
      this.loaded = name;
      if (!state.categories.length) this.otherCategories = facets.categories;
    } catch {
      return; // The search reports the error; without facets there are no filters to show.
    } finally {
      if (this.running === controller) this.box.setAttribute("aria-busy", "false");
    }
    this.show(this.state);
  }

  // If all pages are in one folder, the folders inside it are those to choose from.
  async fetchFacets(parameters, signal) {
    const facets = await get("facets", parameters, signal);
    let { folders, pages } = facets;
    for (let level = 0; level < MAX_SINGLE_FOLDERS && folders.length === 1 && folders[0].count === pages; level++) {
      ({ folders, pages } = await get("facets", { ...parameters, path: folders[0].value }, signal));
    }
    return { ...facets, folders };
  }

  show(state) {
    this.showActive(state);
    if (!this.facets) return;
    const { tags = [], folders = [] } = this.facets;
    const categories = this.getCategories(state);
    this.box.hidden = !(categories.length || tags.length || folders.length || hasFilters(state) || this.hasPast);
    const focused = document.activeElement?.dataset?.filter;
    this.form.replaceChildren(
      ...this.group("Category", "category", categories, state.categories, (values) => this.onChange({ categories: values })),
      ...this.group("Tag", "tag", tags, state.tags, (values) => this.onChange({ tags: values })),
      ...this.renderFolders(folders, state),
      ...this.group("Changed", "since", Object.keys(SINCE).map((value) => ({ value })), state.since ? [state.since] : [], (values) => this.onChange({ since: values.at(-1) || "" }), true),
      ...this.renderPast(state),
    );
    for (const group of this.form.querySelectorAll("fieldset")) makeRoving(group, "input[type=checkbox]");
    const again = focused && [...this.form.querySelectorAll("input")].find((input) => input.dataset.filter === focused);
    if (again) again.focus();
    if (again?.type === "search") again.setSelectionRange(again.value.length, again.value.length);
  }

  // A page may have any of the selected categories, so the others stay available.
  getCategories(state) {
    const found = this.facets.categories || [];
    const others = state.categories.length ? (this.otherCategories || []).filter(({ value }) => found.every((facet) => facet.value !== value)) : [];
    return [...found, ...others.map(({ value }) => ({ value }))];
  }

  // The selected folder with those around it, then the folders inside it.
  renderFolders(folders, state) {
    const parts = state.path ? state.path.split("/") : [];
    const around = parts.map((_, index) => ({ value: parts.slice(0, index + 1).join("/"), depth: index }));
    const isInside = ({ value }) => !state.path || value.startsWith(`${state.path}/`);
    const inside = folders.filter(isInside).map((facet) => ({ ...facet, depth: parts.length }));
    const change = (values) => this.onChange({ path: values.at(-1) ?? parts.slice(0, -1).join("/") });
    return this.group("Folder", "path", [...around, ...inside], state.path ? [state.path] : [], change, true);
  }

  group(title, name, values, selected, change, single = false) {
    const missing = selected.filter((value) => values.every((facet) => facet.value !== value)).map((value) => ({ value }));
    const rows = [...values, ...missing];
    // A single value is no choice.
    if (!rows.length || (rows.length === 1 && !selected.length)) return [];
    const isExpanded = this.expanded.has(name);
    const typed = (this.typed[name] || "").toLowerCase();
    const matching = isExpanded ? rows.filter(({ value }) => value.toLowerCase().includes(typed)) : rows;
    const limit = isExpanded ? MAX_EXPANDED : MAX_SHOWN;
    const visible = matching.filter(({ value }, index) => index < limit || selected.includes(value));
    const fieldset = el("fieldset", {}, el("legend", {}, title));
    if (isExpanded && rows.length > MAX_EXPANDED) {
      const onType = (event) => { this.typed[name] = event.target.value; this.show(this.state); };
      fieldset.append(el("input", { type: "search", "aria-label": `Find a ${title.toLowerCase()}`, placeholder: "Find…", value: this.typed[name] || "", "data-filter": `${name}:find`, on: { input: onType } }));
    }
    for (const { value, count, depth = 0 } of visible) {
      const toggle = (event) => {
        const others = single ? [] : selected.filter((other) => other !== value);
        change(event.target.checked ? [...others, value] : others);
      };
      const box = el("input", { type: "checkbox", name, value, "data-filter": `${name}:${value}`, checked: selected.includes(value), on: { change: toggle } });
      const text = name === "since" ? formatSince(value) : name === "path" ? value.split("/").at(-1) : value;
      fieldset.append(el("label", { class: depth ? `depth${Math.min(depth, 4)}` : null, title: depth ? value : null }, box, el("span", { class: "value" }, text), count ? el("span", { class: "number" }, count.toLocaleString("en")) : null));
    }
    if (!isExpanded && rows.length > visible.length) {
      const expand = () => { this.expanded.add(name); this.show(this.state); this.form.querySelector(`[name="${name}"]`)?.focus(); };
      fieldset.append(el("button", { type: "button", class: "quiet link", on: { click: expand } }, `${rows.length - visible.length} more`));
    } else if (matching.length > visible.length) {
      fieldset.append(el("p", { class: "hint" }, `${matching.length - visible.length} more: type to find them`));
    }
    return [fieldset];
  }

  showActive(state) {
    this.state = state;
    const list = byId("active-filters");
    const items = [
      ...state.categories.map((value) => [value, { categories: state.categories.filter((other) => other !== value) }]),
      ...state.tags.map((value) => [value, { tags: state.tags.filter((other) => other !== value) }]),
      ...(state.path ? [[`${state.path}/`, { path: "" }]] : []),
      ...(state.since ? [[formatSince(state.since), { since: "" }]] : []),
      ...(state.at ? [[`At ${state.at}`, { at: "" }]] : []),
    ];
    list.hidden = !items.length;
    list.replaceChildren(...items.map(([value, change]) => el("li", {},
      el("button", { type: "button", "aria-label": `Remove the filter ${value}`, on: { click: () => this.onChange(change) } },
        value, el("span", { "aria-hidden": "true" }, " ×")))));
    const count = byId("filter-count");
    count.hidden = !items.length;
    count.textContent = String(items.length);
  }
}
