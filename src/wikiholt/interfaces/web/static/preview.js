// The preview of a page beside the results (above them on a phone): sanitized HTML from the server, and related pages.
import { encodePath, get } from "./api.js";
import { byId, el, formatPath, getCategory, icon, renderTime, shortRevision } from "./dom.js";
import { clearMessage, showProblem } from "./messages.js";
import { loadImages, parseHtml, showDiagrams } from "./trusted_html.js";
import { buildUrl } from "./url_state.js";

const narrow = matchMedia("(max-width: 61.99rem)");
const CLOSE = "M6 6l12 12M18 6L6 18";
const LINK = "M10 14a4 4 0 0 0 5.700 0l3-3a4 4 0 0 0-5.700-5.700l-1 1M14 10a4 4 0 0 0-5.700 0l-3 3a4 4 0 0 0 5.700 5.700l1-1";

export class Preview {
  constructor(setState) {
    this.setState = setState;
    this.box = byId("preview");
    this.page = "";
    this.anchor = null;
    this.running = null;
    this.opener = null;
    this.box.addEventListener("click", (event) => this.onClick(event));
    narrow.addEventListener("change", () => this.updateLayout());
  }

  get isOpen() { return !this.box.hidden; }

  close() {
    this.setState({ page: "", anchor: "" }, true);
  }

  // Makes the next `show` load the page again.
  reset() { this.page = ""; }

  // Makes the next `show` scroll to the heading again.
  resetAnchor() { this.anchor = null; }

  // Shows the page in the URL, or hides the preview.
  show(state, first = false) {
    if (!state.page) { this.hide(); return; }
    this.state = state;
    if (state.page === this.page && this.isOpen) {
      if (state.anchor !== this.anchor) this.scrollTo(state.anchor);
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
    this.updateLayout();
    if (inside) (this.opener?.isConnected && this.opener !== document.body ? this.opener : byId("q")).focus({ preventScroll: true });
  }

  updateLayout() {
    const covers = this.isOpen && narrow.matches;
    if (this.isOpen) this.box.setAttribute("aria-labelledby", "app.preview-name");
    document.body.classList.toggle("reading", this.isOpen);
    for (const other of document.querySelectorAll(".top, .bar, .filters, .found")) other.inert = covers;
    if (covers) { this.box.setAttribute("role", "dialog"); this.box.setAttribute("aria-modal", "true"); }
    else { this.box.setAttribute("role", "region"); this.box.removeAttribute("aria-modal"); }
  }

  async load(state, first) {
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    const retry = () => this.load(state, first);
    this.page = state.page;
    if (!this.isOpen) {
      this.box.replaceChildren(this.renderHeader({ name: formatPath(state.page).split(" / ").at(-1), path: state.page }), el("div", { class: "body waiting" }));
      this.box.hidden = false;
      this.updateLayout();
    }
    if (narrow.matches && !first) this.box.focus({ preventScroll: true });
    try {
      const page = await get(`preview/${encodePath(state.page)}`, { q: state.q }, controller.signal);
      if (this.running !== controller) return;
      this.renderPage(page);
      this.scrollTo(this.state.anchor);
      this.showRelated(page, controller.signal);
    } catch (error) {
      if (error.name === "AbortError" || this.running !== controller) return;
      this.reset();
      const body = el("div", { class: "body" });
      this.box.replaceChildren(this.renderHeader({ name: formatPath(state.page).split(" / ").at(-1), path: state.page }), body);
      // The result list already opens the key dialog.
      if (error.status === 401) { clearMessage(body); body.append(el("p", { class: "hint" }, "A key is required to read this page.")); }
      else showProblem(body, error, retry);
    }
  }

  renderHeader(page) {
    const copyButton = el("button", { type: "button", class: "quiet icon", "aria-label": "Copy a link to this page", title: "Copy a link to this page", on: { click: () => this.copyLink(copyButton) } }, icon(LINK));
    const fullPage = el("a", { class: "button", href: this.getFullPageUrl(page.path) }, "Full page");
    const wikiLink = /^https?:/.test(page.url || "") && el("a", { class: "button quiet", href: page.url, rel: "noopener" }, "Open in the wiki");
    return el("header", {},
      el("div", { class: "title" }, el("h2", { id: "app.preview-name" }, page.name), el("p", { class: "place" }, formatPath(page.path))),
      el("div", { class: "actions" }, fullPage, wikiLink, copyButton,
        el("button", { type: "button", class: "quiet icon", "aria-label": "Close the preview", title: "Close (Esc)", on: { click: () => this.close() } }, icon(CLOSE))));
  }

  // The page view, at the heading of the passage and with the words of the query marked. A browser that knows text
  // fragments scrolls to the sentence itself.
  getFullPageUrl(path) {
    const { q, anchor } = this.state;
    const link = [...document.querySelectorAll("#app\\.results a[data-text]")].find((a) => a.dataset.page === path && a.dataset.anchor === anchor);
    const text = link?.dataset.text ? `:~:text=${encodeURIComponent(link.dataset.text).replaceAll("-", "%2D")}` : "";
    const parameters = new URLSearchParams({ page: path, ...(q ? { q } : {}) }).toString().replaceAll("%2F", "/");
    return `read?${parameters}${anchor || text ? `#${encodeURIComponent(anchor)}${text}` : ""}`;
  }

  renderPage(page) {
    const body = el("div", { class: "body" });
    const article = el("article", { class: "page", dir: "auto" });
    const html = parseHtml(page.html).body;
    loadImages(html);
    article.append(...html.childNodes);
    // The header shows the name already.
    const title = article.firstElementChild;
    if (title?.tagName === "H1" && title.textContent.trim() === page.name) title.classList.add("visually-hidden");
    const facts = el("p", { class: "facts" }, getCategory(page) && el("span", {}, getCategory(page)), renderTime(page.last_updated),
      page.revision && el("span", { title: page.revision }, `revision ${shortRevision(page.revision)}`),
      el("span", { class: "tags" }, (page.tags || []).map((tag) => el("a", { class: "tag", href: buildUrl({ ...this.state, q: "", page: "", anchor: "", tags: [tag], categories: [], path: "" }), "data-tag": tag, title: `Pages tagged ${tag}` }, tag))));
    this.related = el("footer", { class: "related" });
    body.append(facts, this.renderOutline(page), article,
      page.cut ? el("p", { class: "note" }, "This page is long; the preview shows only its beginning.") : "", this.related);
    this.box.replaceChildren(this.renderHeader(page), body);
    this.box.scrollTop = 0;
    body.scrollTop = 0;
    showDiagrams(article);
  }

  renderOutline(page) {
    const headings = page.headings.filter((heading) => heading.level > 1 && heading.level < 4 && heading.anchor);
    if (headings.length < 3) return "";
    return el("details", { class: "outline" }, el("summary", {}, "On this page"), el("ul", {}, headings.map((heading) =>
      el("li", { class: `level${heading.level}` }, el("a", { href: `#${encodeURIComponent(heading.anchor)}` }, heading.text)))));
  }

  async showRelated(page, signal) {
    const list = (title, pages) => pages.length && this.related.append(el("section", {}, el("h3", {}, title),
      el("ul", {}, pages.map((page) => el("li", {}, el("a", { href: buildUrl({ ...this.state, page: page.path, anchor: "" }), "data-page": page.path }, page.name),
        page.name !== page.path && el("span", { class: "place" }, formatPath(page.path)))))));
    list("Linked from", (page.linked_from || []).map((path) => (typeof path === "string" ? { path, name: formatPath(path) } : path)));
    try {
      const answer = await get("similar", { path: page.path, n: 5 }, signal);
      list("Similar pages", answer.results);
    } catch { /* Related pages are optional. */ }
  }

  onClick(event) {
    const link = event.target.closest("a[href]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    const href = link.getAttribute("href");
    if (link.dataset.tag) { event.preventDefault(); this.setState({ tags: [link.dataset.tag], page: "", anchor: "" }, true); return; }
    if (href.startsWith("#")) { event.preventDefault(); this.resetAnchor(); this.setState({ anchor: decodeURIComponent(href.slice(1)) }, true); return; }
    const url = new URL(link.href);
    if (url.origin !== location.origin || url.pathname !== location.pathname || !url.searchParams.has("page")) return;
    event.preventDefault();
    this.setState({ page: url.searchParams.get("page"), anchor: decodeURIComponent(url.hash.slice(1)) }, true);
  }

  scrollTo(anchor) {
    this.anchor = anchor;
    const target = anchor && [...this.box.querySelectorAll(".page [id]")].find((element) => element.id === anchor);
    for (const old of this.box.querySelectorAll(".target")) old.classList.remove("target");
    if (!target) return;
    target.classList.add("target");
    // Scroll only the preview, not the list beside it.
    const frame = narrow.matches ? this.box : target.closest(".body");
    const head = narrow.matches ? this.box.firstElementChild.offsetHeight : 0;
    frame.scrollTop += target.getBoundingClientRect().top - frame.getBoundingClientRect().top - head - 14;
  }

  async copyLink(button) {
    try {
      await navigator.clipboard.writeText(location.href);
      button.classList.add("done");
      button.setAttribute("aria-label", "Copied");
      setTimeout(() => { button.classList.remove("done"); button.setAttribute("aria-label", "Copy a link to this page"); }, 1500);
    } catch { /* Some browsers allow this on secure pages only. */ }
  }
}
