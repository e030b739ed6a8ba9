// The hint "similar pages exist" before a new page is saved: the server compares its title and its text.
import { encodePath, send } from "./api.js";
import { el, formatPath } from "./dom.js";
import { readUrl } from "./page_actions.js";

export class SimilarPages {
  constructor(area) {
    this.area = area;
    this.confirmed = new Set();
    this.round = 0;
  }

  // Shows similar pages and returns them.
  async show(path, text) {
    if (!path) return [];
    const current = ++this.round;
    const { similar: pages } = await send("POST", `preview/${encodePath(path)}`, { content: text }).catch(() => ({ similar: [] }));
    if (current !== this.round) return pages; // a later request shows its own pages
    // Links open in another tab: this one has text that is not saved.
    this.area.replaceChildren(...(pages.length ? [el("div", { class: "message similar-pages", tabindex: "-1" }, el("p", { class: "title" }, "Similar pages exist"),
      el("p", { class: "hint" }, "One of them may be the place for your text. They open in another tab."),
      el("ul", {}, pages.map((page) => el("li", {}, el("a", { href: readUrl(page.path), target: "_blank" }, page.name), " ", el("span", { class: "place" }, formatPath(page.path))))))] : []));
    return pages;
  }

  // Returns whether the user must look at similar pages first. The second attempt is not stopped.
  async stops(path, text) {
    const pages = await this.show(path, text);
    const isNews = pages.some((page) => !this.confirmed.has(page.path));
    for (const page of pages) this.confirmed.add(page.path);
    if (isNews) this.area.firstElementChild?.focus();
    return isNews;
  }
}
