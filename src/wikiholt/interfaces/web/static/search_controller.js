// Turns what is typed and selected into requests and shows the newest response; older responses are dropped.
import { get } from "./api.js";
import { byId } from "./dom.js";
import { Filters } from "./filters.js";
import { showProblem } from "./messages.js";
import { clearResults, fetchRecentPages, showPages, showResults } from "./results.js";
import { hasFilters, NO_FILTERS, parseUrl, toFilterParameters, updateUrl } from "./url_state.js";

const TYPING_DELAY_MS = 90;
const PAGE_SIZE = 10;
const MAX_RESULTS = 100;
const QUERY_FIELDS = ["q", "mode", "tags", "categories", "path", "since"];

const input = byId("q");
const results = byId("results");
const modes = document.querySelectorAll("input[name=mode]");

export class SearchController {
  // `name` is the name of the wiki, for the title. `openResult` follows the link of a result. `onStateChange` and
  // `onResults` get the state; `onError` gets a problem and a function that retries.
  constructor({ name, openResult, onStateChange = () => {}, onResults = () => {}, onError = (problem, retry) => showProblem(byId("state"), problem, retry) }) {
    Object.assign(this, { name, openResult, onStateChange, onResults, onError });
    this.state = parseUrl();
    this.limit = PAGE_SIZE;
    this.timer = 0;
    this.running = null;
    this.shownState = null;
    this.filters = new Filters((change) => this.setState(change, true));
    this.retryActions = {
      withoutFilters: () => this.setState(NO_FILTERS, true),
      byMeaningToo: () => { this.setState({ mode: "hybrid" }, true); this.fillForm(); },
    };
    this.fillForm();
    this.filters.showActive(this.state);
    this.addListeners();
  }

  // Every change of the state goes through here.
  setState(change, push = false) {
    const previous = this.state;
    this.state = { ...this.state, ...change };
    updateUrl(this.state, push);
    this.applyState(previous);
  }

  applyState(previous) {
    if (!QUERY_FIELDS.every((name) => String(previous[name]) === String(this.state[name]))) {
      this.limit = PAGE_SIZE;
      this.filters.show(this.state);
      this.search();
    }
    this.onStateChange(this.state);
  }

  fillForm() {
    if (input.value !== this.state.q) input.value = this.state.q;
    for (const radio of modes) radio.checked = radio.value === this.state.mode;
    byId("clear").hidden = !input.value;
  }

  clear() {
    input.value = "";
    this.setState({ q: "" }, true);
    this.fillForm();
    input.focus();
  }

  // Keeps the results that the server has rendered for this URL.
  useServerResults() {
    this.shownState = this.state;
    this.filters.load(this.state);
  }

  // Loads the filters and the results for the URL.
  start() {
    this.filters.load(this.state);
    return this.search();
  }

  fetchResults(state, signal) {
    if (state.q.trim()) return get("search", { q: state.q, mode: state.mode, n: this.limit, ...toFilterParameters(state) }, signal);
    return hasFilters(state) ? get("pages", { limit: this.limit, ...toFilterParameters(state) }, signal) : fetchRecentPages(signal);
  }

  async search() {
    clearTimeout(this.timer);
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    const state = this.state;
    document.title = state.q ? `${state.q} · ${this.name}` : this.name;
    document.body.classList.add("waiting");
    try {
      const answer = await this.fetchResults(state, controller.signal);
      if (this.running !== controller) return;
      if (state.q.trim()) showResults(answer, state, this.limit, this.retryActions);
      else showPages(answer, state, this.limit, hasFilters(state));
      this.shownState = state;
      this.onResults(this.state);
    } catch (error) {
      if (error.name === "AbortError" || this.running !== controller) return;
      this.shownState = null;
      clearResults();
      this.onError(error, () => this.start());
    } finally {
      if (this.running === controller) { this.running = null; document.body.classList.remove("waiting"); }
    }
  }

  onInput() {
    byId("clear").hidden = !input.value;
    clearTimeout(this.timer);
    const isFirst = !this.state.q;
    this.timer = setTimeout(() => this.setState({ q: input.value }, isFirst && input.value !== ""), TYPING_DELAY_MS);
  }

  onSubmit() {
    clearTimeout(this.timer);
    if (input.value !== this.state.q) this.setState({ q: input.value });
    // On a phone, Enter only closes the keyboard.
    if (matchMedia("(pointer: coarse)").matches) { input.blur(); return; }
    const first = results.querySelector("a[data-page]");
    if (first && this.shownState && this.shownState.q === input.value && !this.running) this.openResult(first);
  }

  async showMore() {
    const count = results.querySelectorAll("a[data-page]").length;
    this.limit = Math.min(MAX_RESULTS, this.limit + (this.state.q ? PAGE_SIZE : 3 * PAGE_SIZE));
    await this.search();
    results.querySelectorAll("a[data-page]")[count]?.focus();
  }

  addListeners() {
    input.addEventListener("input", (event) => { if (!event.isComposing) this.onInput(); });
    input.addEventListener("compositionend", () => this.onInput());
    byId("form").addEventListener("submit", (event) => { event.preventDefault(); this.onSubmit(); });
    byId("clear").addEventListener("click", () => this.clear());
    for (const radio of modes) radio.addEventListener("change", () => this.setState({ mode: radio.value }, true));
    byId("more").addEventListener("click", (event) => { event.preventDefault(); this.showMore(); });
    addEventListener("popstate", () => {
      const previous = this.state;
      this.state = parseUrl();
      this.fillForm();
      this.applyState(previous);
    });
  }
}
