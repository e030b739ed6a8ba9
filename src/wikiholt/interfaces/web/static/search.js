// The search page of the service: results, and beside them the page that was opened.
import { mark } from "./answers.js";
import { byId } from "./dom.js";
import { Finding } from "./finding.js";
import { keyButton } from "./key.js";
import { listen } from "./keyboard.js";
import { Preview } from "./preview.js";
import { sayProblem } from "./states.js";

const results = byId("results");
const preview = new Preview((change, push) => finding.go(change, push));
const finding = new Finding({
  name: document.title,
  open,
  followed: (state) => { preview.show(state); mark(state.page); },
  found: (state) => mark(state.page),
  failed: (problem) => sayProblem(byId("state"), problem, begin),
});

function open(link, push = true) {
  preview.aim();
  if (link.dataset.page !== undefined) finding.go({ page: link.dataset.page, anchor: link.dataset.anchor || "" }, push);
}

results.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  open(link);
});
listen({ input: byId("q"), results, preview, open, clear: () => finding.clear() });

function begin() {
  keyButton(begin);
  finding.begin();
  preview.forget();
  preview.show(finding.state, true);
}
begin();
