// Filters by category, tag, path and time: what there is to choose comes from the server, what is chosen from the address.
import { get } from "./api.js";
import { byId, el } from "./dom.js";

const SHOWN = 8;
const SINCE = { "7d": "Past week", "30d": "Past month", "365d": "Past year" };
const wide = matchMedia("(min-width: 62rem)");

const told = (since) => SINCE[since] || `Past ${since}`;

export class Filters {
  constructor(changed) {
    this.changed = changed;
    this.box = byId("filters");
    this.form = byId("filter-form");
    this.facets = null;
    this.all = new Set();
    const fit = () => { this.box.open = wide.matches; };
    wide.addEventListener("change", fit);
    fit();
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  async load(state) {
    try {
      this.facets = await get("facets");
    } catch {
      return; // The search itself says what is wrong; without facets there is nothing to choose from.
    }
    this.show(state);
  }

  show(state) {
    this.chosen(state);
    if (!this.facets) return;
    const { categories = [], tags = [] } = this.facets;
    const paths = this.facets.paths || this.facets.folders || [];
    this.box.hidden = !(categories.length || tags.length || paths.length);
    const focused = document.activeElement?.dataset?.filter;
    this.form.replaceChildren(
      ...this.group("Category", "category", categories, state.categories, (values) => this.changed({ categories: values })),
      ...this.group("Tag", "tag", tags, state.tags, (values) => this.changed({ tags: values })),
      ...this.group("Folder", "path", paths, state.path ? [state.path] : [], (values) => this.changed({ path: values.at(-1) || "" }), true),
      ...this.group("Changed", "since", Object.keys(SINCE).map((value) => ({ value })), state.since ? [state.since] : [], (values) => this.changed({ since: values.at(-1) || "" }), true),
    );
    if (focused) [...this.form.querySelectorAll("input")].find((input) => input.dataset.filter === focused)?.focus();
  }

  group(title, name, values, chosen, change, single = false) {
    const known = new Map(values.map((each) => [each.value ?? each.name, each.count]));
    for (const value of chosen) if (!known.has(value)) known.set(value, 0);
    if (!known.size) return [];
    const rows = [...known];
    const cut = this.all.has(name) ? rows : rows.filter(([value], at) => at < SHOWN || chosen.includes(value));
    const fieldset = el("fieldset", {}, el("legend", {}, title));
    for (const [value, count] of cut) {
      const toggle = (event) => {
        const others = single ? [] : chosen.filter((each) => each !== value);
        change(event.target.checked ? [...others, value] : others);
      };
      const box = el("input", { type: "checkbox", name, value, "data-filter": `${name}:${value}`, checked: chosen.includes(value), on: { change: toggle } });
      fieldset.append(el("label", {}, box, el("span", { class: "value" }, name === "since" ? told(value) : value), count ? el("span", { class: "number" }, String(count)) : null));
    }
    if (rows.length > cut.length) {
      const open = () => { this.all.add(name); this.show(this.state); fieldset.querySelectorAll("input")[SHOWN]?.focus(); };
      fieldset.append(el("button", { type: "button", class: "quiet link", on: { click: open } }, `${rows.length - cut.length} more`));
    }
    return [fieldset];
  }

  chosen(state) {
    this.state = state;
    const list = byId("chosen");
    const items = [
      ...state.categories.map((value) => [value, { categories: state.categories.filter((each) => each !== value) }]),
      ...state.tags.map((value) => [value, { tags: state.tags.filter((each) => each !== value) }]),
      ...(state.path ? [[`${state.path}/`, { path: "" }]] : []),
      ...(state.since ? [[told(state.since), { since: "" }]] : []),
    ];
    list.hidden = !items.length;
    list.replaceChildren(...items.map(([value, change]) => el("li", {},
      el("button", { type: "button", "aria-label": `Remove the filter ${value}`, on: { click: () => this.changed(change) } },
        value, el("span", { "aria-hidden": "true" }, " ×")))));
    const count = byId("filter-count");
    count.hidden = !items.length;
    count.textContent = String(items.length);
  }
}
