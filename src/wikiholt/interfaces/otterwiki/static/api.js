// The HTTP API of the wiki of this page, with the session of the user. URLs are relative to the URL of this file.
import { addParameters, request } from "./request.js";

export { encodePath } from "./request.js";

export const ROOT = new URL("../../../../", import.meta.url);
const BASE = new URL("api/v1/", ROOT);

export const get = (path, parameters = {}, signal = undefined) =>
  request(addParameters(new URL(path, BASE), parameters), { signal, credentials: "same-origin" });

// Writing requests need the CSRF token of Otterwiki's pages.
export function post(path, parameters = {}) {
  const token = document.querySelector("meta[name='csrf-token']")?.content || "";
  return request(addParameters(new URL(path, BASE), parameters), { method: "POST", headers: { "X-CSRFToken": token }, credentials: "same-origin" });
}

// The URL of a page of the plugin.
export const pluginUrl = (name) => new URL(`-/wikiholt/${name}`, ROOT);
