// Building and updating the document: nodes are only ever made from names and texts, never parsed from markup.

/** @typedef {Node | string | number | false | null | undefined | Child[]} Child */
/** @typedef {Record<string, any>} Attributes that are null or false are left out; `style` is an object */

const SVG = "http://www.w3.org/2000/svg";
const READER_STATE = new Set(["open", "data-more"]); // unfolded, scrolled

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Attributes | null} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes ?? null, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Attributes | null} attributes @param {...Child} children
 */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** @template {Element} E @param {E} node @param {Attributes | null} attributes @param {Child[]} children */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [property, set] of Object.entries(value)) styleOf(node).setProperty(property, set);
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

/** @param {Element} node */
function styleOf(node) {
  return /** @type {HTMLElement | SVGElement} */ (node).style;
}

/** @param {Element} node @param {Child[]} children */
function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Calls `handle(element, event)` for events of what matches `selector` inside `root`, now or later.
 * @template {HTMLElement} E @template {keyof HTMLElementEventMap} K
 * @param {HTMLElement} root @param {K} type @param {string} selector
 * @param {(element: E, event: HTMLElementEventMap[K]) => void} handle
 */
export function on(root, type, selector, handle) {
  root.addEventListener(type, (event) => {
    const element = event.target instanceof Element ? event.target.closest(selector) : null;
    if (element && root.contains(element)) handle(/** @type {E} */ (element), event);
  });
}

/**
 * Makes the children of `old` like those of `fresh`. Every node that can stays: with it stay focus, selection, scroll
 * positions, what was typed and what was unfolded. Nodes with `data-key` are matched by it, others by place; a node
 * with `data-own` belongs to whoever draws on it.
 * @param {Element} old @param {Element} fresh
 */
export function update(old, fresh) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  morphChildren(old, fresh);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** @param {Element} old @param {Element} fresh */
function morphChildren(old, fresh) {
  const keys = new Set([...fresh.children].map(keyOf));
  const keyed = new Map();
  for (const child of [...old.children]) {
    if (!keyOf(child)) continue;
    // removed before places are compared: else what follows it would be taken for something new
    if (keys.has(keyOf(child))) keyed.set(keyOf(child), child);
    else child.remove();
  }
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const match = key ? keyed.get(key) : next && !keyOf(next) ? next : null;
    if (match && match.nodeName === wanted.nodeName && keyOf(match) === key) {
      if (match === next) next = match.nextSibling;
      else old.insertBefore(match, next);
      morph(match, wanted);
    } else {
      old.insertBefore(wanted, next);
    }
    if (key) keyed.delete(key);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") : null;
}

/** @param {Node} old @param {Node} fresh */
function morph(old, fresh) {
  if (!(old instanceof Element && fresh instanceof Element)) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-own")) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

/** @param {Element} old @param {Element} fresh */
function morphAttributes(old, fresh) {
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "style") {
      const [before, after] = [styleOf(old), styleOf(fresh)];
      if (before.cssText !== after.cssText) before.cssText = after.cssText;
    } else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && !READER_STATE.has(name)) old.removeAttribute(name);
  // the attribute is only the first state of an option
  if (old instanceof HTMLOptionElement && fresh instanceof HTMLOptionElement && fresh.selected && !old.selected)
    old.selected = true;
}
