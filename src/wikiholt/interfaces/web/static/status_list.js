// A list of wikis with the status of each; requests only the wikis that are shown.
import { showNoWiki } from "./access.js";
import { get } from "./api.js";
import { byId, el, plural, renderTime } from "./dom.js";
import { clearMessage, showProblem } from "./messages.js";
import { isBusy, renderProgress, renderStatusLabel } from "./status_label.js";

const PAGE_SIZE = 25;
const PARALLEL_REQUESTS = 4;
const BUSY_INTERVAL_MS = 2000;
const IDLE_INTERVAL_MS = 15000;

const statusUrl = (slug) => `../../w/${encodeURIComponent(slug)}/api/v1/status`;

export class StatusList {
  // `getHref` returns the link of a wiki. `onAccess` is called after the user entered a key.
  constructor(getHref, onAccess = () => this.load()) {
    this.getHref = getHref;
    this.onAccess = onAccess;
    this.wikis = [];
    this.shown = PAGE_SIZE;
    this.round = 0;
    this.timer = 0;
    this.onVisible = () => this.refresh();
    byId("q").addEventListener("input", () => { this.shown = PAGE_SIZE; this.show(); });
    byId("more").addEventListener("click", () => { this.shown += PAGE_SIZE; this.show(); });
    document.addEventListener("visibilitychange", this.onVisible);
  }

  stop() {
    this.round += 1;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  async load() {
    clearMessage(byId("state"));
    try {
      this.wikis = (await get("wikis", { limit: 10000 })).wikis;
    } catch (error) {
      showProblem(byId("state"), error, () => this.load());
      return;
    }
    byId("wiki-box").hidden = this.wikis.length < 8;
    if (this.wikis.length) this.show();
    else showNoWiki(byId("state"), this.onAccess);
  }

  show() {
    const text = byId("q").value.trim().toLowerCase();
    const matches = this.wikis.filter((wiki) => wiki.slug.includes(text));
    const rows = new Map([...byId("status").children].map((li) => [li.dataset.slug, li]));
    byId("status").replaceChildren(...matches.slice(0, this.shown).map((wiki) => rows.get(wiki.slug) || this.renderRow(wiki)));
    byId("more").hidden = matches.length <= this.shown;
    byId("count").textContent = matches.length === this.wikis.length ? plural(this.wikis.length, "wiki") : `${matches.length} of ${plural(this.wikis.length, "wiki")}`;
    this.refresh();
  }

  // Only an operator gets the source.
  renderRow(wiki) {
    return el("li", { "data-slug": wiki.slug }, el("div", {}, el("a", { class: "name", href: this.getHref(wiki.slug) }, wiki.slug), wiki.source && el("p", { class: "place" }, wiki.source)), el("div", { class: "details" }));
  }

  async refresh() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const current = ++this.round;
    const rows = [...byId("status").children];
    let busy = false;
    const refreshRows = async () => {
      for (let li = rows.shift(); li && current === this.round; li = rows.shift()) {
        try {
          const status = await get(statusUrl(li.dataset.slug));
          busy = busy || isBusy(status);
          showStatus(li.lastElementChild, status);
        } catch (error) {
          li.lastElementChild.replaceChildren(el("span", { class: "hint" }, error.message));
          if (error.status === 429) { rows.length = 0; }
        }
      }
    };
    await Promise.all(Array.from({ length: PARALLEL_REQUESTS }, refreshRows));
    if (current === this.round) this.timer = setTimeout(this.onVisible, busy ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
  }
}

function showStatus(area, status) {
  area.replaceChildren(renderStatusLabel(status),
    el("span", {}, plural(status.pages, "page")),
    status.problems.length ? el("span", {}, plural(status.problems.length, "problem")) : "",
    status.synced_at ? el("span", {}, "synced ", renderTime(status.synced_at)) : "",
    renderProgress(status.activity, `progress-${area.parentElement.dataset.slug}`) || "");
}
