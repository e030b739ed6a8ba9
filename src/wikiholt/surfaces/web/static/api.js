// The HTTP API of the wiki this page belongs to. Addresses are relative: they hold below any prefix and on any host.

const BASE = new URL("api/v1/", new URL("./", location.href));
const PLACE = new URL("./", location.href).pathname;
const ROOT = new URL(document.querySelector(".brand").getAttribute("href"), location.href).pathname;

export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.error || body.title || "The server could not answer.");
    this.status = status;
    this.hint = body.hint || "";
    this.code = body.code || "";
    this.retryAfter = retryAfter;
  }
}

const slot = (place) => `wikiholt.key:${place}`;

// A key is kept for the tab alone. The one given on the farm's own page opens its wikis too.
export const key = {
  get: () => { try { return sessionStorage.getItem(slot(PLACE)) || sessionStorage.getItem(slot(ROOT)); } catch { return null; } },
  set: (value) => { try { sessionStorage.setItem(slot(PLACE), value); } catch { /* asked again on the next page */ } },
  forget: () => { try { sessionStorage.removeItem(slot(PLACE)); sessionStorage.removeItem(slot(ROOT)); } catch { /* none kept */ } },
};

export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

export async function get(path, parameters = {}, signal = undefined) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== "" && each !== null && each !== undefined) url.searchParams.append(name, each);
    }
  }
  const headers = { Accept: "application/json" };
  const secret = key.get();
  if (secret) headers.Authorization = `Bearer ${secret}`;
  let response;
  try {
    response = await fetch(url, { headers, signal, credentials: "omit", cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The server cannot be reached.", hint: "Check that it runs, then try again." }, 0);
  }
  const body = await response.json().catch((error) => { if (error.name === "AbortError") throw error; return {}; });
  if (!response.ok) throw new Problem(response.status, body, Number(response.headers.get("Retry-After")) || 0);
  return body;
}
