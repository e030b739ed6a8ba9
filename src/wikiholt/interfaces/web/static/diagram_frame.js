// Runs in a frame without an origin: turns the text of a Mermaid diagram into a picture for the page that asks.
"use strict";
const getPicture = (svg) => {
  const holder = document.createElement("div");
  holder.innerHTML = svg;
  const picture = holder.firstElementChild;
  // As an image, a picture has the size that its attributes name.
  const [, , width, height] = picture.getAttribute("viewBox").split(/[\s,]+/);
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  return { svg: new XMLSerializer().serializeToString(picture), title: picture.querySelector("title")?.textContent || "" };
};

addEventListener("message", async (event) => {
  if (event.source !== parent) return;
  const { id, source, dark } = event.data;
  mermaid.initialize({
    startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, htmlLabels: false, flowchart: { htmlLabels: false },
    theme: dark ? "dark" : "neutral", fontFamily: "system-ui, sans-serif",
  });
  let answer;
  try {
    answer = getPicture((await mermaid.render(`diagram${id}`, source)).svg);
  } catch (error) {
    answer = { error: String(error?.message || error).split("\n")[0] };
  }
  parent.postMessage({ id, ...answer }, "*");
});
parent.postMessage({ ready: true }, "*");
