// A search box for other sites: one script, no dependencies.
// docs/web.md shows how to use it. Attributes: data-wiki, data-key (a read key), data-open (selector of elements that open the box), data-url (address of
// a page, with {path} and {anchor}), data-placeholder, data-hotkey ("k"; empty for none), data-inline (shows the search in the page). Colours are CSS
// variables. In an export, static_search.js comes before it and searches.
(() => {
  "use strict";
  const script = document.currentScript;
  const options = script.dataset;
  const base = new URL(options.wiki ? `w/${encodeURIComponent(options.wiki)}/` : "./", new URL("./", script.src));
  const hotkey = options.hotkey ?? "k";
  const placeholder = options.placeholder || "Search";
  const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
  const TYPING_DELAY_MS = 150;
  const FINISHED_DELAY_MS = 600;
  const MAX_PAGES = 8;
  const PASSAGES_PER_PAGE = 3;

  const STYLE = `
:host { all: initial; }
* { box-sizing: border-box; margin: 0; padding: 0; font: inherit; color: inherit; }
.root { font: var(--wikiholt-font, 16px/1.5 system-ui, sans-serif); color: var(--wikiholt-text, #1c2420); color-scheme: light;
  --background: var(--wikiholt-background, #fff); --soft: var(--wikiholt-soft, #59635d); --line: var(--wikiholt-line, #d6d3c9);
  --accent: var(--wikiholt-accent, #1a6653); --selected: var(--wikiholt-selected, #e2efe9); --mark: var(--wikiholt-mark, #ffe9a6); --mark-text: var(--wikiholt-mark-text, #3a2c00); }
@media (prefers-color-scheme: dark) { .root.auto { color: var(--wikiholt-text, #e6ece8); color-scheme: dark;
  --background: var(--wikiholt-background, #191f1c); --soft: var(--wikiholt-soft, #a1aea7); --line: var(--wikiholt-line, #3b4942);
  --accent: var(--wikiholt-accent, #85d3b8); --selected: var(--wikiholt-selected, #1c332a); --mark: var(--wikiholt-mark, #57481a); --mark-text: var(--wikiholt-mark-text, #ffedb8); } }
.open { display: inline-flex; gap: .8em; align-items: center; min-width: 12em; padding: .45em .8em; border: 1px solid var(--line); border-radius: 9px; background: var(--background); color: var(--soft); cursor: pointer; text-align: start; }
.open span { flex: 1; }
kbd { font-size: .8em; border: 1px solid var(--line); border-radius: 5px; padding: .1em .4em; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
dialog { width: min(40rem, calc(100vw - 1.5rem)); max-height: min(40rem, calc(100dvh - min(12vh, 6rem) - 1rem)); margin: min(12vh, 6rem) auto auto; border: 1px solid var(--line); border-radius: 14px; background: var(--background); overflow: hidden; box-shadow: 0 20px 60px rgb(0 0 0 / 30%); }
dialog[open] { display: flex; flex-direction: column; }
dialog::backdrop { background: rgb(0 0 0 / 40%); }
.line { display: flex; align-items: center; border-bottom: 1px solid var(--line); }
input { flex: 1; min-width: 0; padding: .9em 1.1em; border: 0; background: none; outline: none; font-size: 1.1em; }
input:focus-visible { outline: none; }
input::-webkit-search-cancel-button { display: none; }
.line:focus-within { box-shadow: inset 0 -2px var(--accent); }
.close { border: 0; background: none; padding: .4em .8em; margin: .4em; border-radius: 8px; cursor: pointer; color: var(--soft); font-size: .85em; }
.list { overflow-y: auto; padding: .5em; flex: 1; }
.list:empty { display: none; }
.dim { opacity: .55; }
.group { list-style: none; padding: .3em 0; }
.page { padding: .3em .7em 0; font-weight: 650; overflow-wrap: anywhere; }
.page small { font-weight: 400; color: var(--soft); margin-inline-start: .5em; }
a { display: block; padding: .4em .7em; border-radius: 9px; text-decoration: none; cursor: pointer; scroll-margin: 3em; }
a:hover, a[aria-selected=true] { background: var(--selected); }
.heading { color: var(--accent); font-size: .92em; display: block; overflow-wrap: anywhere; }
.snippet { font-size: .92em; overflow: hidden; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow-wrap: anywhere; }
mark { background: var(--mark); color: var(--mark-text); border-radius: 3px; padding: 0 .1em; }
.state { padding: .7em 1.1em; color: var(--soft); font-size: .92em; }
.state:empty { display: none; }
.state.inside { border-top: 1px solid var(--line); }
.inline dialog { position: static; width: auto; max-height: none; margin: 0; box-shadow: none; }
.inline .close { display: none; }
`;

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  // `ranges` count characters, not UTF-16 units.
  function highlight(text, ranges) {
    const characters = Array.from(text);
    const parts = [];
    let end = 0;
    for (const [start, stop] of ranges || []) {
      if (start < end) continue;
      parts.push(characters.slice(end, start).join(""), make("mark", {}, characters.slice(start, stop).join("")));
      end = stop;
    }
    return [...parts, characters.slice(end).join("")];
  }

  function getUrl(hit, query) {
    if (options.url) return options.url.replaceAll("{path}", hit.path.split("/").map(encodeURIComponent).join("/")).replaceAll("{anchor}", encodeURIComponent(hit.anchor));
    if (script.search) return new URL(hit.url, script.src).href;
    if (/^https?:/.test(hit.url)) return hit.url;
    const url = new URL("read", base);
    url.search = new URLSearchParams({ page: hit.path, q: query });
    url.hash = hit.anchor;
    return url.href;
  }

  const host = make("wikiholt-search");
  const shadow = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];
  const input = make("input", { type: "search", role: "combobox", "aria-label": placeholder, "aria-expanded": "false", "aria-controls": "list", "aria-autocomplete": "list", placeholder, autocomplete: "off", spellcheck: "false" });
  const close = make("button", { type: "button", class: "close" }, "Close");
  const list = make("div", { class: "list", id: "list", role: "listbox", "aria-label": "Results" });
  const state = make("p", { class: "state", role: "status" });
  const dialog = make("dialog", { "aria-label": placeholder }, make("div", { class: "line" }, input, close), list, state);
  const isInline = options.inline !== undefined;
  const root = make("div", { class: `root${options.theme === "light" ? "" : " auto"}${isInline ? " inline" : ""}` });
  shadow.append(root);
  let links = [];
  let selected = -1;
  let timer = 0;
  let verdictTimer = 0;
  let running = null;

  function select(position) {
    links[selected]?.setAttribute("aria-selected", "false");
    selected = position;
    const link = links[position];
    link?.setAttribute("aria-selected", "true");
    link?.scrollIntoView({ block: "nearest" });
    if (link) input.setAttribute("aria-activedescendant", link.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function renderHit(hit, query) {
    const heading = hit.heading_path.at(-1);
    const title = heading && heading !== hit.name ? [make("span", { class: "heading" }, ...highlight(heading, hit.heading_matches?.at(-1)))] : [];
    const link = make("a", { href: getUrl(hit, query), id: `hit-${links.length}`, role: "option", tabindex: "-1", "aria-selected": "false" },
      ...title, make("span", { class: "snippet" }, ...highlight(hit.snippet, hit.matches)));
    links.push(link);
    return link;
  }

  function show(body, query) {
    links = [];
    const pages = new Map();
    for (const hit of body.results) {
      if (pages.has(hit.path)) pages.get(hit.path).push(hit);
      else if (pages.size < MAX_PAGES) pages.set(hit.path, [hit]);
    }
    // Where several pages have the same name, the path tells them apart.
    const names = [...pages.values()].map(([hit]) => hit.name);
    list.replaceChildren(...[...pages.values()].map((hits, number) => {
      const isRepeated = names.indexOf(hits[0].name) !== names.lastIndexOf(hits[0].name);
      const folder = hits[0].path.split("/").slice(0, isRepeated ? undefined : -1).join(" › ");
      const name = make("div", { class: "page", id: `page-${number}` }, ...highlight(hits[0].name, hits[0].name_matches), ...(folder ? [make("small", {}, folder)] : []));
      return make("div", { class: "group", role: "group", "aria-labelledby": name.id }, name, ...hits.map((hit) => renderHit(hit, query)));
    }));
    list.classList.remove("dim");
    input.setAttribute("aria-expanded", String(links.length > 0));
    select(links.length ? 0 : -1);
    say(body.note || "");
    // Nothing is judged while the user types.
    const verdict = links.length ? "Nothing here is clearly relevant. These pages match best." : `Nothing found for “${query}”.`;
    if (body.nothing_relevant || !links.length) verdictTimer = setTimeout(() => say(verdict), FINISHED_DELAY_MS - TYPING_DELAY_MS);
  }

  const say = (text) => { state.textContent = text; state.classList.toggle("inside", links.length > 0); };

  async function search() {
    const query = input.value.trim();
    running?.abort();
    if (!query) { links = []; list.replaceChildren(); say(""); select(-1); return; }
    const current = running = new AbortController();
    list.classList.add("dim");
    if (script.search) {
      script.search(query, { limit: MAX_PAGES }).then((body) => { if (current === running) show(body, query); }, (error) => { if (current === running) fail(error.message); });
      return;
    }
    const url = new URL("api/v1/search", base);
    url.search = new URLSearchParams({ q: query, n: MAX_PAGES * PASSAGES_PER_PAGE, max_chunks_per_page: PASSAGES_PER_PAGE });
    try {
      const headers = { Accept: "application/json", ...(options.key ? { Authorization: `Bearer ${options.key}` } : {}) };
      const response = await fetch(url, { headers, signal: current.signal, credentials: "omit" });
      const body = await response.json();
      if (current !== running) return;
      if (response.ok) show(body, query);
      else fail(`${body.detail || "The search failed."} ${body.hint || ""}`);
    } catch (error) {
      if (error.name !== "AbortError" && current === running) fail("The search cannot be reached. Try again later.");
    }
  }

  function fail(message) {
    links = [];
    list.replaceChildren();
    select(-1);
    say(message.trim());
  }

  function open() {
    if (dialog.open) { input.focus(); return; }
    dialog.showModal();
    input.focus();
    input.select();
  }

  input.addEventListener("input", () => { clearTimeout(timer); clearTimeout(verdictTimer); timer = setTimeout(search, TYPING_DELAY_MS); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && links.length) { event.preventDefault(); select((selected + step + links.length) % links.length); }
    if (event.key === "Enter" && links[selected]) { event.preventDefault(); links[selected].click(); }
  });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("keydown", (event) => {
    if (!hotkey || event.key.toLowerCase() !== hotkey.toLowerCase() || !(isMac ? event.metaKey : event.ctrlKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (dialog.open && !isInline) dialog.close(); else open();
  });

  root.append(dialog);
  const start = () => {
    const openers = options.open ? document.querySelectorAll(options.open) : [];
    for (const opener of openers) opener.addEventListener("click", (event) => { event.preventDefault(); open(); });
    if (isInline) {
      dialog.show();
      input.value = new URLSearchParams(location.search).get("q") || "";
      search();
    } else if (!openers.length) {
      const label = hotkey ? [make("kbd", {}, `${isMac ? "⌘" : "Ctrl"} ${hotkey.toUpperCase()}`)] : [];
      const button = make("button", { type: "button", class: "open" }, make("span", {}, placeholder), ...label);
      button.addEventListener("click", open);
      root.prepend(button);
    }
    if (script.parentElement === document.head || !script.isConnected) document.body.append(host); else script.after(host);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
