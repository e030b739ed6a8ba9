// Filters by category, tag, folder and date. The values come from the server, the selection from the URL.
import { get } from "./api.js";
import { byId, el } from "./dom.js";

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
  }

  async load(state) {
    try {
      this.facets = await get("facets");
    } catch {
      return; // The search reports the error; without facets there are no filters to show.
    }
    this.show(state);
  }

  show(state) {
    this.showActive(state);
    if (!this.facets) return;
    const { categories = [], tags = [] } = this.facets;
    const paths = this.facets.paths || this.facets.folders || [];
    this.box.hidden = !(categories.length || tags.length || paths.length);
    const focused = document.activeElement?.dataset?.filter;
    this.form.replaceChildren(
      ...this.group("Category", "category", categories, state.categories, (values) => this.onChange({ categories: values })),
      ...this.group("Tag", "tag", tags, state.tags, (values) => this.onChange({ tags: values })),
      ...this.group("Folder", "path", paths, state.path ? [state.path] : [], (values) => this.onChange({ path: values.at(-1) || "" }), true),
      ...this.group("Changed", "since", Object.keys(SINCE).map((value) => ({ value })), state.since ? [state.since] : [], (values) => this.onChange({ since: values.at(-1) || "" }), true),
    );
    if (focused) [...this.form.querySelectorAll("input")].find((input) => input.dataset.filter === focused)?.focus();
  }

  group(title, name, values, selected, change, single = false) {
    const counts = new Map(values.map((facet) => [facet.value ?? facet.name, facet.count]));
    for (const value of selected) if (!counts.has(value)) counts.set(value, 0);
    if (!counts.size) return [];
    const rows = [...counts];
    const visible = this.expanded.has(name) ? rows : rows.filter(([value], index) => index < MAX_SHOWN || selected.includes(value));
    const fieldset = el("fieldset", {}, el("legend", {}, title));
    for (const [value, count] of visible) {
      const toggle = (event) => {
        const others = single ? [] : selected.filter((other) => other !== value);
        change(event.target.checked ? [...others, value] : others);
      };
      const box = el("input", { type: "checkbox", name, value, "data-filter": `${name}:${value}`, checked: selected.includes(value), on: { change: toggle } });
      fieldset.append(el("label", {}, box, el("span", { class: "value" }, name === "since" ? formatSince(value) : value), count ? el("span", { class: "number" }, String(count)) : null));
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
