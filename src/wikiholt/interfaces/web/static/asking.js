// A request to the API: what came back, or a Problem that says what is wrong and what to do.

export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.error || body.title || "The server could not answer.");
    this.status = status;
    this.hint = body.hint || "";
    this.code = body.code || "";
    this.retryAfter = retryAfter;
  }
}

export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

export function withParameters(url, parameters) {
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== "" && each !== null && each !== undefined) url.searchParams.append(name, each);
    }
  }
  return url;
}

export async function ask(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-cache", ...options, headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The server cannot be reached.", hint: "Check that it runs, then try again." }, 0);
  }
  const body = await response.json().catch((error) => { if (error.name === "AbortError") throw error; return {}; });
  if (!response.ok) throw new Problem(response.status, body, Number(response.headers.get("Retry-After")) || 0);
  return body;
}
