// After a refused request: a link to Otterwiki's login, which returns to this page.
import { ROOT } from "./api.js";
import { el } from "./dom.js";

// Replaces the hint of the API, which is for programs.
export const KEY_HINT = "You may have been signed out.";

export function renderKeyButton() {
  const login = new URL("-/login", ROOT);
  login.searchParams.set("next", location.pathname + location.search);
  return el("a", { class: "btn btn-primary", href: login.href }, "Log in");
}
