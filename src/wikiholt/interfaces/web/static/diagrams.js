// Shows Mermaid diagrams as pictures. A frame without an origin draws them, so that nothing in a diagram can reach the
// wiki; the page shows what comes back as an image, in which no script runs.
import { el } from "./dom.js";
import { addZoom } from "./reading_tools.js";

const MAX_SOURCE_CHARS = 20000;
const MAX_PICTURE_CHARS = 4e6;
const TIMEOUT_MS = 20000;
const isDark = () => document.documentElement.dataset.theme === "dark";

export function drawDiagrams(codes) {
  const diagrams = codes.filter((code) => code.textContent.length <= MAX_SOURCE_CHARS).map((code) => {
    const box = code.closest(".code") || code.parentElement;
    return { box, title: box.previousElementSibling, source: code.textContent, image: null };
  });
  if (!diagrams.length) return;
  draw(diagrams);
  // The colours of a picture are those of the page when it was drawn.
  const observer = new MutationObserver(() => { if (diagrams.some(({ box }) => box.isConnected)) draw(diagrams); else observer.disconnect(); });
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

function draw(diagrams) {
  const frame = el("iframe", { src: new URL("../../diagram", import.meta.url), sandbox: "allow-scripts", class: "diagram-frame", title: "Draws diagrams", "aria-hidden": "true", tabindex: "-1" });
  const waiting = new Set(diagrams.keys());
  const end = () => { clearTimeout(timer); removeEventListener("message", receive); frame.remove(); };
  const timer = setTimeout(() => { for (const id of waiting) showFailure(diagrams[id], "it takes too long"); end(); }, TIMEOUT_MS);
  function receive(event) {
    if (event.source !== frame.contentWindow) return;
    const { ready, id, svg, title, error } = event.data;
    if (ready) { diagrams.forEach(({ source }, index) => frame.contentWindow.postMessage({ id: index, source, dark: isDark() }, "*")); return; }
    if (!waiting.delete(id)) return;
    if (typeof svg === "string" && svg.length <= MAX_PICTURE_CHARS) showPicture(diagrams[id], svg, String(title || "")); else showFailure(diagrams[id], String(error || "the picture is too large"));
    if (!waiting.size) end();
  }
  addEventListener("message", receive);
  document.body.append(frame);
}

function showPicture(diagram, svg, title) {
  const source = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  if (diagram.image) { diagram.image.src = source; return; }
  diagram.image = el("img", { class: "diagram", src: source, alt: title || "Diagram, described by the text below" });
  const details = el("details", { class: "diagram-text" }, el("summary", {}, "Text of the diagram"));
  diagram.title?.remove();
  diagram.box.replaceWith(diagram.image, details);
  details.append(diagram.box);
  addZoom(diagram.image);
}

function showFailure({ title }, reason) {
  if (title) title.textContent = `Mermaid diagram, as text: ${reason.slice(0, 200)}`;
}
