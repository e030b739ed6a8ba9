// The search page inside Otterwiki: results lead to the wiki's own pages.
import { encodePath, ROOT } from "./api.js";
import { byId } from "./dom.js";
import { Finding } from "./finding.js";
import { listen } from "./keyboard.js";
import { prepared } from "./preparing.js";

const results = byId("results");
const open = (link) => { location.assign(link.href); };

// Otterwiki's own search takes a query as a part of its path, where a slash would mean something else.
function builtin({ q }) {
  byId("builtin").href = new URL(q && !q.includes("/") ? `-/search/${encodePath(q)}` : "-/search", ROOT).href;
}

const finding = new Finding({ name: byId("main").dataset.name, open, followed: builtin, failed: prepared });
listen({ input: byId("q"), results, preview: { isOpen: false }, open, clear: () => finding.clear() });
if (finding.state.q && results.dataset.q === finding.state.q) finding.adopt();
else finding.begin();
