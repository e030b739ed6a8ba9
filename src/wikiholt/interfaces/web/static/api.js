// The HTTP API of the wiki of this page. URLs are relative, so they work below any prefix and on any host.
import { addParameters, request, requestLines } from "./request.js";

export { encodePath } from "./request.js";

export const ROOT = new URL(document.querySelector(".brand").getAttribute("href"), location.href).pathname;
// The page of an unknown address may be deeper than the others.
export const FIRST_PAGE = new URL((document.querySelector(".wiki-name") || document.querySelector(".brand")).getAttribute("href"), location.href);
const BASE = new URL("api/v1/", FIRST_PAGE);
const PAGE_PATH = FIRST_PAGE.pathname;

const storageKey = (path) => `wikiholt.key:${path}`;

// A key is stored for the tab only. A key entered on the start page is used for all wikis, and so is an operator key.
export const key = {
  get: () => { try { return sessionStorage.getItem(storageKey(PAGE_PATH)) || sessionStorage.getItem(storageKey(ROOT)); } catch { return null; } },
  set: (value, path = PAGE_PATH) => { try { sessionStorage.setItem(storageKey(path), value); } catch { /* the next page asks again */ } },
  forget: () => { try { sessionStorage.removeItem(storageKey(PAGE_PATH)); sessionStorage.removeItem(storageKey(ROOT)); } catch { /* nothing stored */ } },
};

const getHeaders = () => { const secret = key.get(); return secret ? { Authorization: `Bearer ${secret}` } : {}; };

// A file of the wiki, such as an image.
export async function fetchBlob(path) {
  const response = await fetch(new URL(path, FIRST_PAGE), { headers: getHeaders() });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.blob();
}

// The HTML of a page that the server renders, also if it shows an error.
export const fetchPage = async (url) =>
  (await fetch(url, { headers: { Accept: "text/html", ...getHeaders() }, cache: "no-cache" })).text();

// A request that changes something, or has a body.
export function send(method, path, body = undefined, parameters = {}, headers = {}) {
  const type = body ? { "Content-Type": "application/json" } : {};
  return request(addParameters(new URL(path, BASE), parameters), { method, headers: { ...getHeaders(), ...type, ...headers }, body: body && JSON.stringify(body) });
}

export function getLines(path, parameters = {}, signal = undefined) {
  return requestLines(addParameters(new URL(path, BASE), parameters), { headers: getHeaders(), signal });
}

export function get(path, parameters = {}, signal = undefined) {
  return request(addParameters(new URL(path, BASE), parameters), { headers: getHeaders(), signal });
}
