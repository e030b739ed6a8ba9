// Filters by category, tag, folder and date. The values are those of the pages that the query finds; the selection is in
// the URL.
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { makeRoving, moveFocus } from "./roving.js";
import { hasFilters, toFilterParameters } from "./url_state.js";

const MAX_SHOWN = 8;
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
    const updateOpen = () => { this.box.open = wide.matches; };
    wide.addEventListener("change", updateOpen);
    updateOpen();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("keydown", (event) => {
      const group = event.target.closest("fieldset");
      if (group) moveFocus(event, group, "input");
    });
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
      const facets = await get("facets", parameters, controller.signal);
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

  show(state) {
    this.showActive(state);
    if (!this.facets) return;
    const { tags = [], folders = [] } = this.facets;
    const categories = this.getCategories(state);
    this.box.hidden = !(categories.length || tags.length || folders.length || hasFilters(state));
    const focused = document.activeElement?.dataset?.filter;
    this.form.replaceChildren(
      ...this.group("Category", "category", categories, state.categories, (values) => this.onChange({ categories: values })),
      ...this.group("Tag", "tag", tags, state.tags, (values) => this.onChange({ tags: values })),
      ...this.renderFolders(folders, state),
      ...this.group("Changed", "since", Object.keys(SINCE).map((value) => ({ value })), state.since ? [state.since] : [], (values) => this.onChange({ since: values.at(-1) || "" }), true),
    );
    for (const group of this.form.querySelectorAll("fieldset")) makeRoving(group, "input");
    if (focused) [...this.form.querySelectorAll("input")].find((input) => input.dataset.filter === focused)?.focus();
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
    if (!rows.length) return [];
    const visible = this.expanded.has(name) ? rows : rows.filter(({ value }, index) => index < MAX_SHOWN || selected.includes(value));
    const fieldset = el("fieldset", {}, el("legend", {}, title));
    for (const { value, count, depth = 0 } of visible) {
      const toggle = (event) => {
        const others = single ? [] : selected.filter((other) => other !== value);
        change(event.target.checked ? [...others, value] : others);
      };
      const box = el("input", { type: "checkbox", name, value, "data-filter": `${name}:${value}`, checked: selected.includes(value), on: { change: toggle } });
      const text = name === "since" ? formatSince(value) : name === "path" ? value.split("/").at(-1) : value;
      fieldset.append(el("label", { class: depth ? `depth${Math.min(depth, 4)}` : null, title: depth ? value : null }, box, el("span", { class: "value" }, text), count ? el("span", { class: "number" }, String(count)) : null));
    }
    if (rows.length > visible.length) {
      const expand = () => { this.expanded.add(name); this.show(this.state); fieldset.querySelectorAll("input")[MAX_SHOWN]?.focus(); };
      fieldset.append(el("button", { type: "button", class: "quiet link", on: { click: expand } }, `${rows.length - visible.length} more`));
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
