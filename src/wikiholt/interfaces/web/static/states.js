// What is said when there is nothing to show: an error with the server's hint, a wait, an empty answer.
import { el, sentence } from "./dom.js";
import { HOW, wayIn } from "./key.js";

let countdown = null;

export function clearState(place) {
  clearInterval(countdown);
  place.replaceChildren();
}

export function say(place, title, text = "", ...more) {
  clearState(place);
  place.append(el("div", { class: "said" }, el("p", { class: "title" }, title), text && el("p", {}, text), more));
}

// Shows a problem; `again` is called when the reader retries, gives a key, or a rate limit has passed.
export function sayProblem(place, problem, again) {
  // What was said a moment ago need not be read out again.
  const known = place.textContent.startsWith(sentence(problem.message));
  clearState(place);
  // The hint about keys is for programs; a reader is shown the way in.
  const hint = /Bearer/.test(problem.hint) ? HOW : problem.hint;
  const later = problem.retryAfter > 0 || problem.status === 429;
  const box = el("div", { class: later ? "said problem later" : "said problem", role: known ? null : "alert" }, el("p", { class: "title" }, sentence(problem.message)));
  if (hint) box.append(el("p", { class: "hint" }, sentence(hint)));
  if (problem.status === 401 || problem.status === 403) {
    box.append(wayIn(problem, hint, again));
  } else if (later) {
    wait(box, Math.max(1, Math.ceil(problem.retryAfter || 1)), again);
  } else {
    box.append(el("button", { type: "button", on: { click: again } }, "Try again"));
  }
  place.append(box);
}

function wait(box, seconds, again) {
  const left = el("span", {}, String(seconds));
  box.append(el("p", { class: "hint" }, "Goes on by itself in ", left, " s."));
  countdown = setInterval(() => {
    seconds -= 1;
    left.textContent = String(seconds);
    if (seconds > 0) return;
    clearInterval(countdown);
    again();
  }, 1000);
}
