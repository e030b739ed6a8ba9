// "/" goes to the search box, arrows move through the results, Escape closes and clears, one thing at a time.

const wide = matchMedia("(min-width: 62rem)");

export function listen({ input, results, preview, open, clear }) {
  const links = () => [...results.querySelectorAll("a[data-page]")];

  function move(step) {
    const all = links();
    const at = all.indexOf(document.activeElement);
    const next = at + step;
    if (next < 0) { input.focus(); input.select(); return; }
    const link = all[Math.min(next, all.length - 1)];
    if (!link) return;
    link.focus();
    link.closest("li").scrollIntoView({ block: "nearest" });
    // A preview that lies open beside the list follows.
    if (preview.isOpen && wide.matches) open(link, false);
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const at = document.activeElement;
    const typing = at.matches("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]");
    const listed = at === input || results.contains(at);
    if (event.key === "/" && !typing) { event.preventDefault(); input.focus(); input.select(); }
    else if (event.key === "ArrowDown" && listed) { event.preventDefault(); move(at === input ? links().length && 1 : 1); }
    else if (event.key === "ArrowUp" && results.contains(at)) { event.preventDefault(); move(-1); }
    else if (event.key === "Home" && results.contains(at)) { event.preventDefault(); links()[0]?.focus(); }
    else if (event.key === "End" && results.contains(at)) { event.preventDefault(); links().at(-1)?.focus(); }
    else if (event.key === "Escape") {
      if (preview.isOpen) { event.preventDefault(); preview.close(); }
      else if (input.value) { event.preventDefault(); clear(); input.focus(); }
    }
  });
}
