// Checks the accessibility of a page or of one element: contrast, names, references, order of headings, size of targets.
(within) => {
  const root = within ? document.querySelector(within) : document.body;
  const faults = [];
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;
  const report = (what, element) => faults.push(`${what}: ${element.outerHTML.slice(0, 120)}`);

  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const backgroundOf = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const luminance = ({ r, g, b }) => {
    const linear = [r, g, b].map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (one, two) => {
    const [high, low] = [luminance(one), luminance(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  let measured = 0;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !shown(element) || element.closest("[aria-hidden=true], .unseen, script, noscript")) continue;
    const style = getComputedStyle(element);
    const below = backgroundOf(element);
    const ratio = contrast(over(parse(style.color), below), below);
    measured += 1;
    if (ratio < 4.5) report(`contrast ${ratio.toFixed(2)}`, element);
  }
  for (const input of root.querySelectorAll("input::placeholder")) if (shown(input)) measured += 1;

  const ids = [...root.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`two elements have the id ${id}`);
  for (const name of ["aria-controls", "aria-labelledby", "aria-describedby", "for"]) {
    for (const element of root.querySelectorAll(`[${name}]`)) {
      for (const id of element.getAttribute(name).split(" ")) if (!document.getElementById(id)) report(`${name} names nothing`, element);
    }
  }
  if (!within && document.querySelectorAll("main").length !== 1) faults.push("there is not one main");
  if (!document.documentElement.lang) faults.push("the language is not said");
  if (!within && document.querySelectorAll("h1").length < 1) faults.push("there is no h1");
  let level = 0;
  for (const heading of root.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    if (!shown(heading) || heading.closest(".page")) continue;
    const now = Number(heading.tagName[1]);
    if (level && now > level + 1) report(`a heading skips a level after h${level}`, heading);
    level = now;
  }
  for (const svg of root.querySelectorAll("svg")) if (svg.getAttribute("aria-hidden") !== "true") report("a picture is neither named nor hidden", svg);
  for (const element of root.querySelectorAll("a[href], button, input, summary, [tabindex]")) {
    if (!shown(element) || element.closest(".page, .unseen") || element.matches(".skip, [tabindex='-1']")) continue;
    const target = element.closest("label") || (element.matches(".card a") ? element.closest(".card") : element);
    const box = target.getBoundingClientRect();
    if (box.height < 23.5 && !element.closest("p, li")) report(`a target ${Math.round(box.height)} px high`, element);
    if (Number(element.getAttribute("tabindex")) > 0) report("a tabindex above 0", element);
  }
  return { faults, measured };
}
