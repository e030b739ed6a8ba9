// Runs before the first paint, so that a page never flashes in the wrong colours.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const read = () => { try { return localStorage.getItem("wikiholt.theme"); } catch { return null; } };
  const shown = () => read() || (dark.matches ? "dark" : "light");
  const apply = () => {
    root.dataset.theme = shown();
    const button = document.getElementById("app.theme");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-label", shown() === "dark" ? "Use light colours" : "Use dark colours");
    button.title = button.getAttribute("aria-label");
  };
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("app.theme").addEventListener("click", () => {
      const next = shown() === "dark" ? "light" : "dark";
      const system = dark.matches ? "dark" : "light";
      try {
        if (next === system) localStorage.removeItem("wikiholt.theme");
        else localStorage.setItem("wikiholt.theme", next);
      } catch { /* Without storage the system setting applies. */ }
      apply();
    });
  });
})();
