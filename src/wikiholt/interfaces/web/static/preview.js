// A page beside the results (over them on a phone): rendered and cleaned by the server, with what lies near it.
import { addressOf } from "./address.js";
import { encodePath, get } from "./api.js";
import { byId, crumbs, el, icon, short, when } from "./dom.js";
import { clearState, sayProblem } from "./states.js";

const narrow = matchMedia("(max-width: 61.99rem)");
const CLOSE = "M6 6l12 12M18 6L6 18";
const LINK = "M10 14a4 4 0 0 0 5.700 0l3-3a4 4 0 0 0-5.700-5.700l-1 1M14 10a4 4 0 0 0-5.700 0l-3 3a4 4 0 0 0 5.700 5.700l1-1";

// The one place where HTML from the server becomes elements. Browsers that can are told to allow no other.
const policy = window.trustedTypes?.createPolicy("wikiholt-preview", { createHTML: (html) => html });
const trusted = (html) => (policy ? policy.createHTML(html) : html);

export class Preview {
  constructor(go) {
    this.go = go;
    this.box = byId("preview");
    this.page = "";
    this.anchor = null;
    this.running = null;
    this.opener = null;
    this.box.addEventListener("click", (event) => this.follow(event));
    narrow.addEventListener("change", () => this.frame());
  }

  get isOpen() { return !this.box.hidden; }

  close() {
    this.go({ page: "", anchor: "" }, true);
  }

  // The page that is shown next is asked for anew, be it the same.
  forget() { this.page = ""; }

  // The heading that is shown next is gone to, be it the same.
  aim() { this.anchor = null; }

  // Shows the page the address names, or nothing.
  show(state, first = false) {
    if (!state.page) { this.hide(); return; }
    this.state = state;
    if (state.page === this.page && this.isOpen) {
      if (state.anchor !== this.anchor) this.scroll(state.anchor);
      return;
    }
    if (!this.isOpen) this.opener = document.activeElement;
    this.load(state, first);
  }

  hide() {
    if (!this.isOpen) return;
    this.running?.abort();
    const inside = this.box.contains(document.activeElement) || narrow.matches;
    this.box.hidden = true;
    this.box.removeAttribute("aria-labelledby");
    this.box.replaceChildren();
    this.page = "";
    this.frame();
    if (inside) (this.opener?.isConnected && this.opener !== document.body ? this.opener : byId("q")).focus({ preventScroll: true });
  }

  frame() {
    const over = this.isOpen && narrow.matches;
    if (this.isOpen) this.box.setAttribute("aria-labelledby", "app.preview-name");
    document.body.classList.toggle("reading", this.isOpen);
    for (const other of document.querySelectorAll(".top, .bar, .filters, .found")) other.inert = over;
    if (over) { this.box.setAttribute("role", "dialog"); this.box.setAttribute("aria-modal", "true"); }
    else { this.box.setAttribute("role", "region"); this.box.removeAttribute("aria-modal"); }
  }

  async load(state, first) {
    this.running?.abort();
    const mine = new AbortController();
    this.running = mine;
    const again = () => this.load(state, first);
    this.page = state.page;
    if (!this.isOpen) {
      this.box.replaceChildren(this.head({ name: crumbs(state.page), path: state.page }), el("div", { class: "body waiting" }));
      this.box.hidden = false;
      this.frame();
    }
    const into = narrow.matches && !first;
    if (into) this.box.focus({ preventScroll: true });
    try {
      const page = await get(`preview/${encodePath(state.page)}`, {}, mine.signal);
      if (this.running !== mine) return;
      this.fill(page);
      this.scroll(this.state.anchor);
      this.near(page, mine.signal);
    } catch (error) {
      if (error.name === "AbortError" || this.running !== mine) return;
      this.forget();
      const body = el("div", { class: "body" });
      this.box.replaceChildren(this.head({ name: crumbs(state.page), path: state.page }), body);
      // The list asks for a key already; one dialog is enough.
      if (error.status === 401) { clearState(body); body.append(el("p", { class: "hint" }, "This page can be read with a key.")); }
      else sayProblem(body, error, again);
    }
  }

  head(page) {
    const copy = el("button", { type: "button", class: "quiet icon", "aria-label": "Copy a link to this page", title: "Copy a link to this page", on: { click: () => this.copy(copy) } }, icon(LINK));
    const outside = /^https?:/.test(page.url || "") && el("a", { class: "button quiet", href: page.url, rel: "noopener" }, "Open in the wiki");
    return el("header", {},
      el("div", { class: "title" }, el("h2", { id: "app.preview-name" }, page.name), el("p", { class: "place" }, crumbs(page.path))),
      el("div", { class: "actions" }, outside, copy,
        el("button", { type: "button", class: "quiet icon", "aria-label": "Close the preview", title: "Close (Esc)", on: { click: () => this.close() } }, icon(CLOSE))));
  }

  fill(page) {
    const body = el("div", { class: "body" });
    const article = el("article", { class: "page" });
    article.innerHTML = trusted(page.html);
    // The name stands above already.
    const title = article.firstElementChild;
    if (title?.tagName === "H1" && title.textContent.trim() === page.name) title.classList.add("unseen");
    for (const table of article.querySelectorAll("table")) {
      const frame = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" });
      table.replaceWith(frame);
      frame.append(table);
    }
    for (const code of article.querySelectorAll("pre")) code.tabIndex = 0;
    const facts = el("p", { class: "facts" }, page.category && el("span", {}, page.category), when(page.last_updated),
      page.revision && el("span", { title: page.revision }, `revision ${short(page.revision)}`),
      el("span", { class: "tags" }, (page.tags || []).map((tag) => el("a", { class: "tag", href: addressOf({ ...this.state, q: "", page: "", anchor: "", tags: [tag], categories: [], path: "" }), "data-tag": tag, title: `Pages tagged ${tag}` }, tag))));
    this.near_ = el("footer", { class: "near" });
    body.append(facts, this.outline(page), article,
      page.cut ? el("p", { class: "note" }, "This page is long; the preview ends here.") : "", this.near_);
    this.box.replaceChildren(this.head(page), body);
    this.box.scrollTop = 0;
    body.scrollTop = 0;
  }

  outline(page) {
    const headings = page.headings.filter((heading) => heading.level > 1 && heading.level < 4 && heading.anchor);
    if (headings.length < 3) return "";
    return el("details", { class: "outline" }, el("summary", {}, "On this page"), el("ul", {}, headings.map((heading) =>
      el("li", { class: `level${heading.level}` }, el("a", { href: `#${encodeURIComponent(heading.anchor)}` }, heading.text)))));
  }

  async near(page, signal) {
    const list = (title, pages) => pages.length && this.near_.append(el("section", {}, el("h3", {}, title),
      el("ul", {}, pages.map((each) => el("li", {}, el("a", { href: addressOf({ ...this.state, page: each.path, anchor: "" }), "data-page": each.path }, each.name),
        each.name !== each.path && el("span", { class: "place" }, crumbs(each.path)))))));
    list("Linked from", (page.linked_from || []).map((path) => (typeof path === "string" ? { path, name: crumbs(path) } : path)));
    try {
      const answer = await get("similar", { path: page.path, n: 5 }, signal);
      list("Similar pages", answer.results);
    } catch { /* What lies near is an extra: the page itself is there. */ }
  }

  follow(event) {
    const link = event.target.closest("a[href]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    const href = link.getAttribute("href");
    if (link.dataset.tag) { event.preventDefault(); this.go({ tags: [link.dataset.tag], page: "", anchor: "" }, true); return; }
    if (href.startsWith("#")) { event.preventDefault(); this.aim(); this.go({ anchor: decodeURIComponent(href.slice(1)) }, true); return; }
    const url = new URL(link.href);
    if (url.origin !== location.origin || url.pathname !== location.pathname || !url.searchParams.has("page")) return;
    event.preventDefault();
    this.go({ page: url.searchParams.get("page"), anchor: decodeURIComponent(url.hash.slice(1)) }, true);
  }

  scroll(anchor) {
    this.anchor = anchor;
    const target = anchor && [...this.box.querySelectorAll(".page [id]")].find((each) => each.id === anchor);
    for (const old of this.box.querySelectorAll(".target")) old.classList.remove("target");
    if (!target) return;
    target.classList.add("target");
    // Only what holds the page scrolls: the list beside it stays where it is.
    const frame = narrow.matches ? this.box : target.closest(".body");
    const head = narrow.matches ? this.box.firstElementChild.offsetHeight : 0;
    frame.scrollTop += target.getBoundingClientRect().top - frame.getBoundingClientRect().top - head - 14;
  }

  async copy(button) {
    try {
      await navigator.clipboard.writeText(location.href);
      button.classList.add("done");
      button.setAttribute("aria-label", "Copied");
      setTimeout(() => { button.classList.remove("done"); button.setAttribute("aria-label", "Copy a link to this page"); }, 1500);
    } catch { /* Some browsers allow this on secure pages only; the address bar has the link too. */ }
  }
}
