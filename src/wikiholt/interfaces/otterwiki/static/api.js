// The HTTP API of the wiki this page belongs to, asked as who is signed in. This file's own address says where it is.
import { ask, withParameters } from "./asking.js";

export { encodePath } from "./asking.js";

export const ROOT = new URL("../../../../", import.meta.url);
const BASE = new URL("api/v1/", ROOT);

export const get = (path, parameters = {}, signal = undefined) =>
  ask(withParameters(new URL(path, BASE), parameters), { signal, credentials: "same-origin" });

// Whatever changes something carries the token that Otterwiki gives its own pages.
export function post(path, parameters = {}) {
  const token = document.querySelector("meta[name='csrf-token']")?.content || "";
  return ask(withParameters(new URL(path, BASE), parameters), { method: "POST", headers: { "X-CSRFToken": token }, credentials: "same-origin" });
}

// The plugin's own pages.
export const own = (name) => new URL(`-/wikiholt/${name}`, ROOT);
