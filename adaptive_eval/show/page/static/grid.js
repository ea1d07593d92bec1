// A grid of cells on a canvas, since there may be thousands: one stop for the Tab key, arrow keys that move (Home to
// the first), Enter or a click that opens, and a line beneath that says what is there.

import { fitted, roomFor } from "./chart.js";
import { h, on } from "./dom.js";
/** @import { State } from "./parts.js" */

/** @typedef {[row: number, column: number]} Place */
/** @typedef {{left: number, top: number, width: number, height: number}} Box */
/** @typedef {CanvasRenderingContext2D & {ink: (name: string) => string}} Pen with the colours of the style sheet */

/**
 * What a grid shows: `heads` stand above the columns, upright where these are narrow.
 * @typedef {object} Grid
 * @property {string[]} rows
 * @property {string[]} [heads]
 * @property {number} columns
 * @property {number} left room for the names of the rows
 * @property {number} width of a column
 * @property {number} height of a row
 * @property {Place | null} chosen
 * @property {(pen: Pen, at: Place, box: Box) => void} draw
 * @property {(at: Place) => string} tell
 * @property {(at: Place) => void} choose
 * @property {(at: Place) => void} [open]
 * @property {(at: Place) => boolean} [passes] over cells with nothing in them
 */

const SIZE = 12;
const UPRIGHT = 130;
/** What was painted last in a section. @type {WeakMap<HTMLElement, Grid>} */
const painted = new WeakMap();
/** @type {Record<string, Place>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Room for the names of rows, in pixels. @param {string[]} names @param {number} most */
export function namesRoom(names, most) {
  return Math.ceil(roomFor(names, most, SIZE)) + 10;
}

/** The place to draw on. @param {string} label @param {string} kind */
export function grid(label, kind) {
  const says = `${label} Arrow keys move.`;
  return h("div", { class: "grid-of-cells", "data-key": "grid", "data-own": "" }, [
    h("canvas", { tabindex: 0, role: "application", "aria-roledescription": kind, "aria-label": says }),
    h("output", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys."),
  ]);
}

/** How high what stands above the columns is. @param {Grid} shown */
function headOf({ heads, width }) {
  if (!heads?.length) return 0;
  return roomFor(heads, UPRIGHT, SIZE) <= width - 6 ? 18 : Math.ceil(roomFor(heads, UPRIGHT, SIZE)) + 8;
}

/** Where a cell lies, on whole pixels, so that no seam shows. @param {Grid} shown @param {Place} at @returns {Box} */
function boxOf({ left, width, height }, [row, column], top = 0) {
  const from = Math.round(left + column * width);
  const gap = width > 6 ? 1 : 0;
  return { left: from, top: top + row * height, width: Math.round(left + (column + 1) * width) - from - gap, height };
}

/** Draws a grid anew. @param {HTMLElement} root @param {Grid} shown */
export function paint(root, shown) {
  const canvas = root.querySelector("canvas");
  if (!canvas) return;
  painted.set(root, shown);
  const { rows, heads = [], columns, left, width, height, chosen } = shown;
  const dense = window.devicePixelRatio || 1;
  const top = headOf(shown);
  const size = [Math.ceil(left + columns * width) + 1, top + rows.length * height + 1];
  [canvas.width, canvas.height] = size.map((one) => Math.round(one * dense));
  [canvas.style.width, canvas.style.height] = size.map((one) => `${one}px`);
  const style = getComputedStyle(canvas);
  const pen = /** @type {Pen} */ (canvas.getContext("2d"));
  pen.ink = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.font = `${SIZE}px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  pen.fillStyle = style.color;
  for (const [at, head] of heads.entries()) {
    const { left: from, width: room } = boxOf(shown, [0, at]);
    pen.save();
    pen.translate(from + room / 2, top - (top > 18 ? 6 : 9));
    if (top > 18) pen.rotate(-Math.PI / 2);
    pen.textAlign = top > 18 ? "left" : "center";
    pen.fillText(fitted(head, top > 18 ? UPRIGHT : room, SIZE), 0, 0);
    pen.restore();
  }
  pen.textAlign = "right";
  for (const [row, name] of rows.entries()) {
    pen.fillStyle = style.color;
    if (left) pen.fillText(fitted(name, left - 10, SIZE), left - 8, top + (row + 0.5) * height);
    for (let column = 0; column < columns; column += 1)
      shown.draw(pen, [row, column], boxOf(shown, [row, column], top));
  }
  if (!chosen) return;
  const box = boxOf(shown, chosen, top);
  pen.strokeStyle = pen.ink("accent");
  pen.lineWidth = 2;
  pen.strokeRect(box.left, box.top, box.width, box.height - 1);
  say(root, shown, chosen);
}

/** @param {HTMLElement} root @param {Grid} shown @param {Place} at */
function say(root, shown, at) {
  /** @type {HTMLElement} */ (root.querySelector(".readout")).textContent = shown.tell(at);
}

/** Has keys and pointers move over the grid of a section. @param {HTMLElement} root @param {State} state @param {(state: State) => Grid} gridOf */
export function wire(root, state, gridOf) {
  const now = () => painted.get(root) ?? gridOf(state);
  const under = (/** @type {HTMLElement} */ canvas, /** @type {MouseEvent} */ event, /** @type {Grid} */ shown) => {
    const box = canvas.getBoundingClientRect();
    const [down, across] = [event.clientY - box.top - headOf(shown), event.clientX - box.left - shown.left];
    return there(shown, [Math.floor(down / shown.height), Math.floor(across / shown.width)]);
  };
  const choose = (/** @type {Grid} */ shown, /** @type {Place} */ at) => {
    shown.choose(at);
    paint(root, gridOf(state));
  };
  on(root, "pointermove", "canvas", (canvas, event) => {
    const shown = now();
    const at = under(canvas, event, shown);
    if (at) say(root, shown, at);
  });
  on(root, "click", "canvas", (canvas, event) => {
    const shown = now();
    const at = under(canvas, event, shown);
    if (!at) return;
    choose(shown, at);
    shown.open?.(at);
  });
  on(root, "keydown", "canvas", (_, event) => {
    const shown = now();
    const step = event.ctrlKey || event.metaKey || event.altKey ? undefined : STEPS[event.key];
    if (step || event.key === "Home") {
      event.preventDefault();
      const at = step && shown.chosen ? stepped(shown, shown.chosen, step) : there(shown, [0, 0]);
      if (at) choose(shown, at);
    } else if (event.key === "Enter" && shown.chosen && shown.open) {
      event.preventDefault(); // or the same key press would go on to the dialog, and close it
      shown.open(shown.chosen);
    }
  });
}

/** The place that a step leads to, over what is passed; null beyond the edge. @param {Grid} shown @param {Place} from @param {Place} step */
function stepped(shown, [row, column], step) {
  do {
    row += step[0];
    column += step[1];
  } while (shown.passes?.([row, column]) && row >= 0 && column >= 0 && row < shown.rows.length);
  return there(shown, [row, column]);
}

/** A place, if there is something. @param {Grid} shown @param {Place} at @returns {Place | null} */
function there(shown, at) {
  const [row, column] = at;
  const inside = row >= 0 && column >= 0 && row < shown.rows.length && column < shown.columns;
  return inside && !shown.passes?.(at) ? at : null;
}
