// The hint "similar pages exist" before a new page is saved: the server compares its title and its text.
import { encodePath, send } from "./api.js";
import { el, formatPath } from "./dom.js";
import { readUrl } from "./page_actions.js";

export class SimilarPages {
  constructor(area) {
    this.area = area;
    this.shown = new Set();
  }

  // Shows similar pages, and returns whether one is new to the user.
  async show(path, text) {
    if (!path) return false;
    const { similar: pages } = await send("POST", `preview/${encodePath(path)}`, { content: text }).catch(() => ({ similar: [] }));
    const isNews = pages.some((page) => !this.shown.has(page.path));
    for (const page of pages) this.shown.add(page.path);
    // Links open in another tab: this one has text that is not saved.
    this.area.replaceChildren(...(pages.length ? [el("div", { class: "message similar-pages", tabindex: "-1" }, el("p", { class: "title" }, "Similar pages exist"),
      el("p", { class: "hint" }, "One of them may be the place for your text. They open in another tab."),
      el("ul", {}, pages.map((page) => el("li", {}, el("a", { href: readUrl(page.path), target: "_blank" }, page.name), " ", el("span", { class: "place" }, formatPath(page.path))))))] : []));
    return isNews;
  }

  // Returns whether the user must look at similar pages first. The second attempt is not stopped.
  async stops(path, text) {
    const isNews = await this.show(path, text);
    if (isNews) this.area.firstElementChild.focus();
    return isNews;
  }
}
