// The search page of the service: results, and the preview of the opened page beside them.
import { byId } from "./dom.js";
import { setUpKeyButton } from "./key.js";
import { addKeyboardShortcuts } from "./keyboard.js";
import { showProblem } from "./messages.js";
import { Preview } from "./preview.js";
import { markOpenPage } from "./results.js";
import { SearchController } from "./search_controller.js";

const results = byId("results");
const preview = new Preview((change, push) => search.setState(change, push));
const search = new SearchController({
  name: document.title,
  openResult,
  onStateChange: (state) => { preview.show(state); markOpenPage(state.page); },
  onResults: (state) => markOpenPage(state.page),
  onError: (problem) => showProblem(byId("state"), problem, start),
});

function openResult(link, push = true) {
  preview.resetAnchor();
  if (link.dataset.page !== undefined) search.setState({ page: link.dataset.page, anchor: link.dataset.anchor || "" }, push);
}

results.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  openResult(link);
});
addKeyboardShortcuts({ input: byId("q"), results, preview, open: openResult, clear: () => search.clear() });

function start() {
  setUpKeyButton(start);
  search.start();
  preview.reset();
  preview.show(search.state, true);
}
start();
