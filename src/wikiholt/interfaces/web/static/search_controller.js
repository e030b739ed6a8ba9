// Turns what is typed and selected into requests and shows the newest response; older responses are dropped.
// While the user types, the last results stay, dimmed, and nothing is said to be missing.
import { get } from "./api.js";
import { byId } from "./dom.js";
import { Filters } from "./filters.js";
import { showProblem } from "./messages.js";
import { rememberSearch } from "./recent.js";
import { clearResults, fetchRecentPages, showPages, showResults } from "./results.js";
import { makeRoving } from "./roving.js";
import { hasFilters, NO_FILTERS, parseUrl, toFilterParameters, updateUrl } from "./url_state.js";

const FINISHED_DELAY_MS = 600;
const HAS_WORD_OR_SYMBOL = /[\p{L}\p{N}\p{S}#%&@\/\\§]/u;
const PAGE_SIZE = 20;
const PASSAGES_PER_PAGE = 3;
const MAX_RESULTS = 100;
const QUERY_FIELDS = ["q", "mode", "tags", "categories", "path", "since", "at"];

const input = byId("q");
const results = byId("results");
const modes = document.querySelectorAll("input[name=mode]");

export class SearchController {
  // `name` is the name of the wiki, for the title. `openResult` follows the link of a result. `onStateChange` and
  // `onResults` get the state, and `onSettled` too when the results of a complete query are shown; `onError` gets a problem and a function that retries.
  constructor({ name, openResult, onStateChange = () => {}, onResults = () => {}, onSettled = () => {}, onError = (problem, retry) => showProblem(byId("state"), problem, retry) }) {
    Object.assign(this, { name, openResult, onStateChange, onResults, onSettled, onError });
    this.state = parseUrl();
    this.limit = PAGE_SIZE;
    this.finishTimer = 0;
    this.refused = null;
    this.isFinished = true;
    this.withheld = null;
    this.running = null;
    this.shownState = null;
    this.filters = new Filters((change) => this.select(change));
    this.retryActions = {
      withoutFilters: () => this.select(NO_FILTERS),
      byMeaningToo: () => { this.select({ mode: "hybrid" }); this.fillForm(); },
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

  // A choice of a mode or a filter, with the query as it is typed now.
  select(change) {
    this.markFinished();
    this.setState({ ...change, q: input.value }, true);
  }

  applyState(previous) {
    if (!QUERY_FIELDS.every((name) => String(previous[name]) === String(this.state[name]))) {
      this.limit = PAGE_SIZE;
      this.filters.show(this.state);
      this.search();
      if (this.isFinished) this.filters.update(this.state);
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
    this.select({});
    this.fillForm();
    input.focus();
  }

  // The query is complete: its results are final, and may be none.
  markFinished() {
    clearTimeout(this.finishTimer);
    this.isFinished = true;
  }

  finish() {
    this.markFinished();
    if (input.value !== this.state.q) { this.setState({ q: input.value }); return; }
    updateUrl(this.state, false);
    if (this.withheld && !this.running) this.show(...this.withheld);
    else if (this.shownState && this.shownState.q === this.state.q && !this.running) this.onSettled(this.state);
    this.filters.update(this.state);
  }

  // Keeps the results that the server has rendered for this URL.
  useServerResults() {
    this.shownState = this.state;
    this.filters.update(this.state);
  }

  // Loads the filters and the results for the URL.
  start() {
    this.filters.update(this.state);
    return this.search();
  }

  fetchResults(state, signal) {
    const filters = toFilterParameters(state);
    if (state.q.trim()) return get(state.at ? "past/search" : "search", { q: state.q, mode: state.mode, n: this.limit, max_chunks_per_page: PASSAGES_PER_PAGE, at: state.at, ...filters }, signal);
    return hasFilters(state) ? get("pages", { limit: this.limit, ...filters }, signal) : fetchRecentPages(signal);
  }

  async search() {
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    const state = this.state;
    document.title = state.q ? `${state.q} · ${this.name}` : this.name;
    document.body.classList.add("waiting");
    this.withheld = null;
    try {
      const answer = await this.fetchResults(state, controller.signal);
      if (this.running !== controller) return;
      if (this.isFinished || !state.q.trim() || !answer.nothing_relevant) this.show(answer, state);
      else this.withheld = [answer, state];
    } catch (error) {
      if (error.name === "AbortError" || this.running !== controller) return;
      if (error.status === 422 && !this.isFinished) { this.refused = state.q; this.state = this.shownState ?? { ...state, q: "" }; return; }
      updateUrl(state, false);
      this.shownState = null;
      clearResults();
      document.body.classList.remove("pending");
      this.onError(error, () => this.start());
    } finally {
      if (this.running === controller) {
        this.running = null;
        document.body.classList.remove("waiting");
        this.searchTyped();
      }
    }
  }

  show(answer, state) {
    this.withheld = null;
    const hadFocus = results.contains(document.activeElement);
    if (state.q.trim()) showResults(answer, state, this.limit, this.retryActions);
    else showPages(answer, state, this.limit, hasFilters(state));
    this.shownState = state;
    document.body.classList.toggle("pending", input.value !== state.q);
    if (hadFocus) (results.querySelector("a[data-page]") || input).focus();
    makeRoving(results, "a[data-page]");
    this.onResults(this.state);
    if (this.isFinished) this.onSettled(this.state);
  }

  onInput() {
    byId("clear").hidden = !input.value;
    document.body.classList.toggle("pending", input.value !== this.shownState?.q);
    clearTimeout(this.finishTimer);
    this.isFinished = false;
    this.searchTyped();
    this.finishTimer = setTimeout(() => this.finish(), FINISHED_DELAY_MS);
  }

  // While a request runs, the next one waits for its answer: fast typing costs a slow server no more than one at a time.
  // The URL follows when the query is complete, since browsers limit how often it may change. What the server refuses, such
  // as the beginning of `-word`, is an error only then.
  searchTyped() {
    if (this.isFinished || this.running || [this.state.q, this.refused].includes(input.value)) return;
    if (input.value.trim() && !HAS_WORD_OR_SYMBOL.test(input.value)) return;
    const previous = this.state;
    this.state = { ...previous, q: input.value };
    if (!previous.q) updateUrl(this.state, true);
    this.applyState(previous);
  }

  onSubmit() {
    if (input.value.trim()) rememberSearch(input.value.trim());
    this.finish();
    // On a phone, Enter only closes the keyboard.
    if (matchMedia("(pointer: coarse)").matches) { input.blur(); return; }
    const first = results.querySelector("a[data-page]");
    if (first && this.shownState && this.shownState.q === input.value && !this.running) this.openResult(first);
  }

  async showMore() {
    const count = results.querySelectorAll("h2 a[data-page]").length;
    this.limit = Math.min(MAX_RESULTS, this.limit + PAGE_SIZE);
    await this.search();
    results.querySelectorAll("h2 a[data-page]")[count]?.focus();
  }

  addListeners() {
    input.addEventListener("input", (event) => { if (!event.isComposing) this.onInput(); });
    input.addEventListener("compositionend", () => this.onInput());
    byId("form").addEventListener("submit", (event) => { event.preventDefault(); this.onSubmit(); });
    byId("clear").addEventListener("click", () => this.clear());
    for (const radio of modes) radio.addEventListener("change", () => this.select({ mode: radio.value }));
    byId("more").addEventListener("click", (event) => { event.preventDefault(); this.showMore(); });
    addEventListener("popstate", () => {
      const previous = this.state;
      this.markFinished();
      this.state = parseUrl();
      this.fillForm();
      this.applyState(previous);
    });
  }
}
