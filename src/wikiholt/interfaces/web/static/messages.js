// Messages in the area of results: errors with the hint of the server, countdowns, empty results.
import { byId, el, toSentence } from "./dom.js";
import { KEY_HINT, renderKeyButton } from "./key.js";

const MAX_DELAY_S = 60;
const OFFLINE_DELAY_S = 2;
let countdown = null;
let onOnline = null;
let repeats = 0;

export function clearMessage(area) {
  clearInterval(countdown);
  removeEventListener("online", onOnline);
  area.replaceChildren();
}

export function showMessage(area, title, text = "", ...more) {
  clearMessage(area);
  area.append(el("div", { class: "message" }, el("p", { class: "title" }, title), text && el("p", {}, text), more));
}

// Shows a problem. `retry` is called when the user retries or enters a key, or later: after the time that the server
// names, twice as long after each further failure; at once when the browser is online again.
export function showProblem(area, problem, retry) {
  // Screen readers need not read the same message again.
  const isSignedOut = problem.status === 401 && byId("sign-in");
  const message = isSignedOut ? "You are not signed in." : toSentence(problem.message);
  const isRepeated = area.textContent.startsWith(message);
  repeats = isRepeated ? repeats + 1 : 0;
  clearMessage(area);
  if (problem.code === "wiki-not-found") { showUnknownWiki(area); return; }
  // The hint about the Authorization header is for programs; users get a button.
  const hint = isSignedOut ? "Sign in to read this wiki." : /Bearer/.test(problem.hint) ? KEY_HINT : problem.hint;
  const delay = problem.retryAfter || (problem.status === 429 ? 1 : problem.status === 0 ? OFFLINE_DELAY_S : 0);
  const box = el("div", { class: `message problem${delay ? " later" : problem.status === 401 ? " locked" : ""}`, role: isRepeated ? null : "alert" }, el("p", { class: "title" }, message));
  if (hint) box.append(el("p", { class: "hint" }, toSentence(hint)));
  if (problem.status === 401 || problem.status === 403) box.append(renderKeyButton(message, hint, retry));
  else if (delay) startCountdown(box, Math.min(MAX_DELAY_S, Math.ceil(delay * 2 ** repeats)), retry);
  // What is invalid stays invalid.
  if (![401, 403, 422].includes(problem.status)) box.append(el("button", { type: "button", on: { click: retry } }, delay ? "Try now" : "Try again"));
  area.append(box);
  if (problem.status === 0) { onOnline = () => { repeats = 0; retry(); }; addEventListener("online", onOnline, { once: true }); }
}

function showUnknownWiki(area) {
  const start = document.querySelector(".brand")?.getAttribute("href") || "/";
  showMessage(area, "There is no wiki with this name.", "The address may be wrong, or the wiki was removed.", el("p", { class: "actions" }, el("a", { class: "button primary", href: start }, "All wikis")));
}

function startCountdown(box, seconds, retry) {
  const left = el("span", {}, String(seconds));
  box.append(el("p", { class: "hint" }, "Tries again automatically in ", left, " s."));
  countdown = setInterval(() => {
    if (document.hidden) return;
    seconds -= 1;
    left.textContent = String(seconds);
    if (seconds > 0) return;
    clearInterval(countdown);
    retry();
  }, 1000);
}
