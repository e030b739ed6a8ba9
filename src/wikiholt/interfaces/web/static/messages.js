// Messages in area of results: errors with the hint of the server, countdowns, empty results.
import { el, toSentence } from "./dom.js";
import { KEY_HINT, renderAccessButton } from "./key.js";

let countdown = null;

export function clearMessage(area) {
  clearInterval(countdown);
  area.replaceChildren();
}

export function showMessage(area, title, text = "", ...more) {
  clearMessage(area);
  area.append(el("div", { class: "message" }, el("p", { class: "title" }, title), text && el("p", {}, text), more));
}

// Shows a problem. `retry` is called when the user retries or enters a key, or when the rate limit has passed.
export function showProblem(area, problem, retry) {
  // Screen readers need not read the same message again.
  const isRepeated = area.textContent.startsWith(toSentence(problem.message));
  clearMessage(area);
  // The hint about the Authorization header is for programs; users get a button.
  const hint = /Bearer/.test(problem.hint) ? KEY_HINT : problem.hint;
  const retriesLater = problem.retryAfter > 0 || problem.status === 429;
  const box = el("div", { class: retriesLater ? "message problem later" : "message problem", role: isRepeated ? null : "alert" }, el("p", { class: "title" }, toSentence(problem.message)));
  if (hint) box.append(el("p", { class: "hint" }, toSentence(hint)));
  if (problem.status === 401 || problem.status === 403) {
    box.append(renderAccessButton(problem, hint, retry));
  } else if (retriesLater) {
    startCountdown(box, Math.max(1, Math.ceil(problem.retryAfter || 1)), retry);
  } else {
    box.append(el("button", { type: "button", on: { click: retry } }, "Try again"));
  }
  area.append(box);
}

function startCountdown(box, seconds, retry) {
  const left = el("span", {}, String(seconds));
  box.append(el("p", { class: "hint" }, "Tries again automatically in ", left, " s."));
  countdown = setInterval(() => {
    seconds -= 1;
    left.textContent = String(seconds);
    if (seconds > 0) return;
    clearInterval(countdown);
    retry();
  }, 1000);
}
