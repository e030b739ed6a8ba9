// The search box of every page leads to the search page. Without script it leads to Otterwiki's own search, as ever.
import { own } from "./api.js";

export const box = document.querySelector(".navbar #search-query");

if (box?.form) {
  const { form } = box;
  form.action = own("search").href;
  form.method = "get";
  form.setAttribute("role", "search");
  box.name = "q";
  box.maxLength = 2000;
  box.autocomplete = "off";
  box.setAttribute("aria-label", "Search this wiki");
  // A token has no business in an address.
  for (const token of form.querySelectorAll("[name=csrf_token]")) token.disabled = true;
}
