// The only place where HTML from the server becomes elements; Trusted Types forbid any other.
import { fetchBlob, key } from "./api.js";

const policy = window.trustedTypes?.createPolicy("wikiholt-page", { createHTML: (html) => html });

// Elements of an inert document: nothing is loaded before they are inserted.
export const parseHtml = (html) => new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");

// An image cannot send a key, so images of a private wiki are fetched and shown from memory.
export function loadImages(root) {
  if (!key.get()) return;
  for (const image of root.querySelectorAll("img[src^='files/']")) {
    const source = image.getAttribute("src");
    image.removeAttribute("src");
    fetchBlob(source).then((blob) => { image.src = URL.createObjectURL(blob); }).catch(() => { /* its description is shown */ });
  }
}

// The library that draws diagrams is large: only a page that has one loads it.
export function showDiagrams(root) {
  const codes = [...root.querySelectorAll("code.language-mermaid")];
  if (codes.length) import("./diagrams.js").then(({ drawDiagrams }) => drawDiagrams(codes));
}
