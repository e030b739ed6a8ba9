// Adds a link to the admin page of the search index to Otterwiki's preferences menu.
import { pluginUrl } from "./api.js";
import { el } from "./dom.js";

const links = document.querySelectorAll(".sidebar-menu a[href*='/-/admin']");
const isCurrent = location.pathname === pluginUrl("admin").pathname;
links[links.length - 1]?.after(el("a", { class: "sidebar-link sidebar-link-with-icon", href: pluginUrl("admin").href, "aria-current": isCurrent && "page" },
  el("span", { class: "sidebar-icon" }, el("i", { class: "fas fa-search", "aria-hidden": "true" })), " Search index"));
