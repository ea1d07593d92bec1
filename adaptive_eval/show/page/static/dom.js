// Building and updating the document: nodes are only ever made from names and texts, never parsed from markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; attributes that are null or false are left out, `style` is an object. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

/** Calls `handle(element, event)` for events of what matches `selector` inside `root`, now or later. */
export function on(root, type, selector, handle) {
  root.addEventListener(type, (event) => {
    const found = event.target instanceof Element ? event.target.closest(selector) : null;
    if (found && root.contains(found)) handle(found, event);
  });
}

/**
 * Makes the children of `old` like those of `fresh`, keeping every node that can stay: with it stay focus, selection,
 * scroll positions, what was typed and what was unfolded. Nodes with `data-key` are matched by it, others by place;
 * a node with `data-own` belongs to whoever draws on it.
 */
export function update(old, fresh) {
  const focused = document.activeElement;
  morphChildren(old, fresh);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function morphChildren(old, fresh) {
  const keys = new Set([...fresh.children].map(keyOf));
  const keyed = new Map();
  for (const child of [...old.children]) {
    if (!keyOf(child)) continue;
    // gone before places are compared: what follows it would else be taken for something new
    if (keys.has(keyOf(child))) keyed.set(keyOf(child), child);
    else child.remove();
  }
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const match = keyOf(wanted) ? keyed.get(keyOf(wanted)) : at && !keyOf(at) ? at : null;
    if (match && alike(match, wanted)) {
      if (match === at) at = at.nextSibling;
      else old.insertBefore(match, at);
      morph(match, wanted);
    } else {
      old.insertBefore(wanted, at);
    }
    if (keyOf(wanted)) keyed.delete(keyOf(wanted));
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function alike(one, other) {
  return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.hasAttribute("data-own")) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

function morphAttributes(old, fresh) {
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "style") {
      if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
    } else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  if (fresh.selected && !old.selected) old.selected = true; // the attribute says only what an option was at first
}
