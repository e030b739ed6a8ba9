// The HTTP API of the wiki this page belongs to. Addresses are relative: they hold below any prefix and on any host.
import { ask, withParameters } from "./asking.js";

export { encodePath } from "./asking.js";

const BASE = new URL("api/v1/", new URL("./", location.href));
const PLACE = new URL("./", location.href).pathname;
const ROOT = new URL(document.querySelector(".brand").getAttribute("href"), location.href).pathname;

const slot = (place) => `wikiholt.key:${place}`;

// A key is kept for the tab alone. The one given on the farm's own page opens its wikis too.
export const key = {
  get: () => { try { return sessionStorage.getItem(slot(PLACE)) || sessionStorage.getItem(slot(ROOT)); } catch { return null; } },
  set: (value) => { try { sessionStorage.setItem(slot(PLACE), value); } catch { /* asked again on the next page */ } },
  forget: () => { try { sessionStorage.removeItem(slot(PLACE)); sessionStorage.removeItem(slot(ROOT)); } catch { /* none kept */ } },
};

export function get(path, parameters = {}, signal = undefined) {
  const secret = key.get();
  const headers = secret ? { Authorization: `Bearer ${secret}` } : {};
  return ask(withParameters(new URL(path, BASE), parameters), { headers, signal, credentials: "omit" });
}
