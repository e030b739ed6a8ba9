// The search page of the service: results, and the preview of the opened page beside them.
import { showAccessLinks } from "./access.js";
import { byId } from "./dom.js";
import { showFirstIndexing } from "./first_index.js";
import { setUpKeyButton } from "./key.js";
import { addKeyboardShortcuts } from "./keyboard.js";
import { Preview } from "./preview.js";
import { rememberSearch, showRecentSearches } from "./recent.js";
import { markOpenPage } from "./results.js";
import { SearchController } from "./search_controller.js";
import { addGlobalShortcuts, focusSearch } from "./shortcuts.js";
import { buildUrl } from "./url_state.js";

const results = byId("results");
const preview = new Preview((change, push) => search.setState(change, push));
const search = new SearchController({
  name: document.title,
  openResult,
  onStateChange: (state) => { preview.show(state); markOpenPage(state.page); showRecent(); },
  onResults: (state) => markOpenPage(state.page),
  onSettled: updateAnswer,
  onError: (problem) => showFirstIndexing(problem, start),
});

// Two words are no question: the script for answers is loaded with the first longer query.
let answers = null;
function updateAnswer(state) {
  const isQuestion = state.q.trim() && !state.at; // answers are those of today
  if (!answers && state.q.trim().split(/\s+/).length <= 2) return;
  answers ||= import("./answer.js");
  answers.then(({ clearAnswer, showAnswer }) => (isQuestion ? showAnswer(state) : clearAnswer()));
}

function openResult(link, push = true) {
  preview.resetAnchor();
  if (link.dataset.page === undefined) return;
  if (search.state.q.trim()) rememberSearch(search.state.q.trim());
  search.setState({ page: link.dataset.page, anchor: link.dataset.anchor || "" }, push);
}

function showRecent() {
  if (search.state.q) byId("recent").hidden = true;
  else showRecentSearches((query) => buildUrl({ ...search.state, q: query, page: "", anchor: "" }));
}

results.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  openResult(link);
});
addKeyboardShortcuts({ input: byId("q"), results, preview, open: openResult, clear: () => search.clear() });
addGlobalShortcuts(() => { if (byId("preview").getAttribute("aria-modal")) preview.close(); focusSearch(); });

function start() {
  setUpKeyButton(start);
  showAccessLinks().then((access) => search.filters.offerPast(access.operator || ["past", "write", "admin"].includes(access.scope)));
  showRecent();
  search.start();
  preview.reset();
  preview.show(search.state, true);
}
start();
