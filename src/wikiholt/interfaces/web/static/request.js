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

// The JSON documents that the server sends as lines, as they come.
export async function* requestLines(url, options) {
  const response = await fetch(url, { cache: "no-store", ...options, headers: { Accept: "application/x-ndjson", ...options.headers } });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})), 0);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
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
