// One tab stop for a group of links or inputs: the focused one, or the first. Arrow keys move between them.

export function makeRoving(container, selector) {
  const items = [...container.querySelectorAll(selector)];
  const current = items.includes(document.activeElement) ? document.activeElement : items.find((item) => item.checked) || items[0];
  for (const item of items) item.tabIndex = item === current ? 0 : -1;
  if (container.dataset.roving) return;
  container.dataset.roving = "true";
  container.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const item of container.querySelectorAll(selector)) item.tabIndex = item === event.target ? 0 : -1;
  });
}

// Moves the focus in a group by an arrow key.
export function moveFocus(event, container, selector) {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const items = [...container.querySelectorAll(selector)];
  if (!step || !items.includes(document.activeElement)) return;
  event.preventDefault();
  items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
}
