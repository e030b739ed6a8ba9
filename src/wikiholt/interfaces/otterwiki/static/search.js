// The search page inside Otterwiki: results link to pages of the wiki.
import { encodePath, ROOT } from "./api.js";
import { byId } from "./dom.js";
import { showFirstIndexing } from "./first_index.js";
import { addKeyboardShortcuts } from "./keyboard.js";
import { SearchController } from "./search_controller.js";

const results = byId("results");
const openResult = (link) => { location.assign(link.href); };

// Otterwiki's own search has the query in its path, which cannot contain a slash.
function updateBuiltinLink({ q }) {
  byId("builtin").href = new URL(q && !q.includes("/") ? `-/search/${encodePath(q)}` : "-/search", ROOT).href;
}

const search = new SearchController({ name: byId("main").dataset.name, openResult, onStateChange: updateBuiltinLink, onError: showFirstIndexing });
addKeyboardShortcuts({ input: byId("q"), results, preview: { isOpen: false }, open: openResult, clear: () => search.clear() });
if (search.state.q && results.dataset.q === search.state.q) search.useServerResults();
else search.start();
