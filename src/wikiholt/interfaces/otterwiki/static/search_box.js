// Makes Otterwiki's search box open the search page. Without JavaScript it opens Otterwiki's own search.
import { pluginUrl } from "./api.js";

export const box = document.querySelector(".navbar #search-query");

if (box?.form) {
  const { form } = box;
  form.action = pluginUrl("search").href;
  form.method = "get";
  form.setAttribute("role", "search");
  box.name = "q";
  box.maxLength = 2000;
  box.autocomplete = "off";
  box.setAttribute("aria-label", "Search this wiki");
  // Keep the CSRF token out of the URL.
  for (const token of form.querySelectorAll("[name=csrf_token]")) token.disabled = true;
}
