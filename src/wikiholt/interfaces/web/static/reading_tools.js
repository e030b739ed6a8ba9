// Tools in the text of a page: links to headings, buttons that copy code, and images that open in full size.
import { el } from "./dom.js";
import { showDiagrams } from "./trusted_html.js";

const COPIED_MS = 1500;

export function addReadingTools(text) {
  if (!text) return;
  for (const heading of text.querySelectorAll(":is(h1, h2, h3, h4, h5, h6)[id]")) {
    heading.append(" ", el("a", { class: "heading-link", href: `#${encodeURIComponent(heading.id)}`, "aria-label": `Link to ${heading.textContent.trim()}` }, "#"));
  }
  for (const code of text.querySelectorAll("pre")) addCopyButton(code);
  for (const image of text.querySelectorAll("img")) if (!image.closest("a")) addZoom(image);
  showDiagrams(text);
}

function addCopyButton(code) {
  // Without a secure context, such as plain HTTP from another machine, there is no clipboard.
  if (!navigator.clipboard) return;
  const button = el("button", { type: "button", class: "copy", on: { click: copy } }, "Copy");
  async function copy() {
    await navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
    setTimeout(() => { button.textContent = "Copy"; }, COPIED_MS);
  }
  const box = el("div", { class: "code" });
  code.replaceWith(box);
  box.append(code, button);
}

// An image that is shown smaller than it is opens in full size.
export function addZoom(image) {
  if (!image.complete) { image.addEventListener("load", () => addZoom(image), { once: true }); return; }
  if (image.naturalWidth <= image.clientWidth) return;
  const button = el("button", { type: "button", class: "zoom", "aria-label": `Enlarge the image: ${image.alt}` });
  image.replaceWith(button);
  button.append(image);
  button.addEventListener("click", () => {
    const dialog = el("dialog", { class: "full-image", "aria-label": image.alt, on: { click: () => dialog.close(), close: () => dialog.remove() } },
      el("img", { src: image.currentSrc || image.src, alt: image.alt }), el("button", { type: "button", class: "quiet icon", "aria-label": "Close" }, "×"));
    document.body.append(dialog);
    dialog.showModal();
  });
}
