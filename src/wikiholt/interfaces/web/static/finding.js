// Searching: what is typed and chosen becomes a request, the newest answer is shown, the rest is dropped.
import { narrowed, readAddress, UNFILTERED, where, writeAddress } from "./address.js";
import { recent, showAnswer, showNothing, showPages } from "./answers.js";
import { get } from "./api.js";
import { byId } from "./dom.js";
import { Filters } from "./filters.js";
import { sayProblem } from "./states.js";

const PAUSE = 90; // milliseconds without a key before a request goes out
const STEP = 10;
const MOST = 100;
const SAME = ["q", "mode", "tags", "categories", "path", "since"];

const input = byId("q");
const results = byId("results");
const modes = document.querySelectorAll("input[name=mode]");

export class Finding {
  // `name` is the wiki's, for the title; `open` follows the link of a result; `followed` hears of every change of the
  // state, `found` when results are there; `failed` is shown a problem.
  constructor({ name, open, followed = () => {}, found = () => {}, failed = (problem, again) => sayProblem(byId("state"), problem, again) }) {
    Object.assign(this, { name, open, followed, found, failed });
    this.state = readAddress();
    this.wanted = STEP;
    this.timer = 0;
    this.running = null;
    this.shownFor = null;
    this.filters = new Filters((change) => this.go(change, true));
    this.ways = {
      unfiltered: () => this.go(UNFILTERED, true),
      byBoth: () => { this.go({ mode: "hybrid" }, true); this.fill(); },
    };
    this.fill();
    this.filters.chosen(this.state);
    this.listen();
  }

  // Everything that changes what is shown passes through here.
  go(change, push = false) {
    const before = this.state;
    this.state = { ...this.state, ...change };
    writeAddress(this.state, push);
    this.follow(before);
  }

  follow(before) {
    if (!SAME.every((name) => String(before[name]) === String(this.state[name]))) {
      this.wanted = STEP;
      this.filters.show(this.state);
      this.search();
    }
    this.followed(this.state);
  }

  fill() {
    if (input.value !== this.state.q) input.value = this.state.q;
    for (const radio of modes) radio.checked = radio.value === this.state.mode;
    byId("clear").hidden = !input.value;
  }

  clear() {
    input.value = "";
    this.go({ q: "" }, true);
    this.fill();
    input.focus();
  }

  // The results are there already: the server has made them for this address.
  adopt() {
    this.shownFor = this.state;
    this.filters.load(this.state);
  }

  // The filters and the results of what the address says, from the beginning.
  begin() {
    this.filters.load(this.state);
    return this.search();
  }

  ask(asked, signal) {
    if (asked.q.trim()) return get("search", { q: asked.q, mode: asked.mode, n: this.wanted, ...where(asked) }, signal);
    return narrowed(asked) ? get("pages", { limit: this.wanted, ...where(asked) }, signal) : recent(signal);
  }

  async search() {
    clearTimeout(this.timer);
    this.running?.abort();
    const mine = new AbortController();
    this.running = mine;
    const asked = this.state;
    document.title = asked.q ? `${asked.q} · ${this.name}` : this.name;
    document.body.classList.add("waiting");
    try {
      const answer = await this.ask(asked, mine.signal);
      if (this.running !== mine) return;
      if (asked.q.trim()) showAnswer(answer, asked, this.wanted, this.ways);
      else showPages(answer, asked, this.wanted, narrowed(asked));
      this.shownFor = asked;
      this.found(this.state);
    } catch (error) {
      if (error.name === "AbortError" || this.running !== mine) return;
      this.shownFor = null;
      showNothing();
      this.failed(error, () => this.begin());
    } finally {
      if (this.running === mine) { this.running = null; document.body.classList.remove("waiting"); }
    }
  }

  typed() {
    byId("clear").hidden = !input.value;
    clearTimeout(this.timer);
    const begins = !this.state.q;
    this.timer = setTimeout(() => this.go({ q: input.value }, begins && input.value !== ""), PAUSE);
  }

  submitted() {
    clearTimeout(this.timer);
    if (input.value !== this.state.q) this.go({ q: input.value });
    // On a phone the key means "that is all": it puts the keyboard away.
    if (matchMedia("(pointer: coarse)").matches) { input.blur(); return; }
    const first = results.querySelector("a[data-page]");
    if (first && this.shownFor && this.shownFor.q === input.value && !this.running) this.open(first);
  }

  async more() {
    const had = results.querySelectorAll("a[data-page]").length;
    this.wanted = Math.min(MOST, this.wanted + (this.state.q ? STEP : 3 * STEP));
    await this.search();
    results.querySelectorAll("a[data-page]")[had]?.focus();
  }

  listen() {
    input.addEventListener("input", (event) => { if (!event.isComposing) this.typed(); });
    input.addEventListener("compositionend", () => this.typed());
    byId("form").addEventListener("submit", (event) => { event.preventDefault(); this.submitted(); });
    byId("clear").addEventListener("click", () => this.clear());
    for (const radio of modes) radio.addEventListener("change", () => this.go({ mode: radio.value }, true));
    byId("more").addEventListener("click", (event) => { event.preventDefault(); this.more(); });
    addEventListener("popstate", () => {
      const before = this.state;
      this.state = readAddress();
      this.fill();
      this.follow(before);
    });
  }
}
