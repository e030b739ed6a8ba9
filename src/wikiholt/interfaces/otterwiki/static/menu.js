// For administrators: a link to the search index among the links of Otterwiki's preferences.
import { own } from "./api.js";
import { el } from "./dom.js";

const links = document.querySelectorAll(".sidebar-menu a[href*='/-/admin']");
const here = location.pathname === own("admin").pathname;
links[links.length - 1]?.after(el("a", { class: "sidebar-link sidebar-link-with-icon", href: own("admin").href, "aria-current": here && "page" },
  el("span", { class: "sidebar-icon" }, el("i", { class: "fas fa-search", "aria-hidden": "true" })), " Search index"));
