// What leads past a refusal: whoever is not signed in, or no longer, goes to the wiki's login and comes back.
import { ROOT } from "./api.js";
import { el } from "./dom.js";

// Said where programs are told to send a key.
export const HOW = "You may have been signed out meanwhile.";

export function wayIn() {
  const login = new URL("-/login", ROOT);
  login.searchParams.set("next", location.pathname + location.search);
  return el("a", { class: "btn btn-primary", href: login.href }, "Log in");
}
