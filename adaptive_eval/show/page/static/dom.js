// Building and updating the document: nodes are only ever made from names and texts, never parsed from markup.

/** @typedef {Node | string | number | false | null | undefined | Child[]} Child */
/** @typedef {Record<string, any>} Attributes */

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";
const KEPT = new Set(["open", "data-more"]); // what the reader has done: unfolded, scrolled

/**
 * An HTML element; attributes that are null or false are left out, `style` is an object.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Attributes | null} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes ?? null, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Attributes | null} attributes @param {...Child} children
 */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A MathML element. @param {string} tag @param {Attributes | null} attributes @param {...Child} children */
export function m(tag, attributes, ...children) {
  return filled(document.createElementNS(MATHML, tag), attributes, children);
}

/** @template {Element} E @param {E} node @param {Attributes | null} attributes @param {Child[]} children */
function filled(node, attributes, children) {
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
 * @param {(found: E, event: HTMLElementEventMap[K]) => void} handle
 */
export function on(root, type, selector, handle) {
  root.addEventListener(type, (event) => {
    const found = event.target instanceof Element ? event.target.closest(selector) : null;
    if (found && root.contains(found)) handle(/** @type {E} */ (found), event);
  });
}

/**
 * Makes the children of `old` like those of `fresh`, keeping every node that can stay: with it stay focus, selection,
 * scroll positions, what was typed and what was unfolded. Nodes with `data-key` are matched by it, others by place;
 * a node with `data-own` belongs to whoever draws on it.
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
    // gone before places are compared: what follows it would else be taken for something new
    if (keys.has(keyOf(child))) keyed.set(keyOf(child), child);
    else child.remove();
  }
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const match = keyOf(wanted) ? keyed.get(keyOf(wanted)) : at && !keyOf(at) ? at : null;
    if (match && alike(match, wanted)) {
      if (match === at) at = match.nextSibling;
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

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") : null;
}

/** @param {Node} one @param {Node} other */
function alike(one, other) {
  return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
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
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  // the attribute says only what an option was at first
  if (old instanceof HTMLOptionElement && fresh instanceof HTMLOptionElement && fresh.selected && !old.selected)
    old.selected = true;
}
