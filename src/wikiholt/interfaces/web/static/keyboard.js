// Keyboard shortcuts of the search page: arrows move through the results, Escape closes the preview, then clears.

const wide = matchMedia("(min-width: 62rem)");

export function addKeyboardShortcuts({ input, results, preview, open, clear }) {
  const links = () => [...results.querySelectorAll("a[data-page]")];

  function move(step) {
    const all = links();
    const next = all.indexOf(document.activeElement) + step;
    if (next < 0) { input.focus(); input.select(); return; }
    const link = all[Math.min(next, all.length - 1)];
    if (!link) return;
    link.focus();
    link.closest("li").scrollIntoView({ block: "nearest" });
    // An open preview beside the list shows the focused result.
    if (preview.isOpen && wide.matches) open(link, false);
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const focused = document.activeElement;
    const inSearch = focused === input || results.contains(focused);
    if (event.key === "ArrowDown" && inSearch) { event.preventDefault(); move(focused === input ? links().length && 1 : 1); }
    else if (event.key === "ArrowUp" && results.contains(focused)) { event.preventDefault(); move(-1); }
    else if (event.key === "Home" && results.contains(focused)) { event.preventDefault(); links()[0]?.focus(); }
    else if (event.key === "End" && results.contains(focused)) { event.preventDefault(); links().at(-1)?.focus(); }
    else if (event.key === "Escape") {
      if (preview.isOpen) { event.preventDefault(); preview.close(); }
      else if (input.value) { event.preventDefault(); clear(); input.focus(); }
    }
  });
}
