// Sends a request to the API; returns the JSON document or throws a Problem.

export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.error || body.title || "The request failed.");
    this.status = status;
    this.hint = body.hint || "";
    this.code = body.code || "";
    this.retryAfter = retryAfter;
  }
}

export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

export function addParameters(url, parameters) {
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== "" && item !== null && item !== undefined) url.searchParams.append(name, item);
    }
  }
  return url;
}

export async function request(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-cache", ...options, headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The server cannot be reached.", hint: "Check that it is running, then try again." }, 0);
  }
  const body = await response.json().catch((error) => { if (error.name === "AbortError") throw error; return {}; });
  if (!response.ok) throw new Problem(response.status, body, Number(response.headers.get("Retry-After")) || 0);
  return body;
}
