// A matrix of many models as squares on a canvas: of 40,000 cells nobody reads the numbers, and a browser has to keep
// each of them.

import { fitted, roomFor } from "./chart.js";
import { h } from "./dom.js";

/** @typedef {[row: number, column: number]} Square */
/** @typedef {"ahead" | "behind" | "self" | ""} Fill */
/** @typedef {{fill: Fill, alone: boolean, framed: boolean}} Look */

/**
 * How the squares lie, in pixels.
 * @typedef {object} Lay
 * @property {number} left
 * @property {number} side
 * @property {number} number
 */

/** More models than this are squares. */
export const MOST_IN_A_TABLE = 40;
const LEAST_SIDE = 4;
const MOST_SIDE = 15;
const HEIGHT_OF_A_NAME = 11;

/** The place to draw on. @param {string} label */
export function squares(label) {
  return h(
    "div",
    { class: "heat", "data-key": "squares", "data-own": "" },
    h("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": label,
    }),
    h("output", { class: "readout", "aria-live": "polite" }, "Point at a pair, or move with the arrow keys."),
  );
}

/**
 * Names stand beside the squares where these are high enough for them.
 * @param {string[]} names @param {number} width @returns {Lay}
 */
export function layOf(names, width) {
  const plain = width / names.length;
  const beside = plain > HEIGHT_OF_A_NAME + 3 ? Math.ceil(roomFor(names, 0.25 * width, HEIGHT_OF_A_NAME)) + 8 : 0;
  const side = Math.max(LEAST_SIDE, Math.min(MOST_SIDE, Math.floor((width - beside - 2) / names.length)));
  return {
    left: side > HEIGHT_OF_A_NAME ? beside : 0,
    side,
    number: names.length,
  };
}

/**
 * @param {HTMLCanvasElement} canvas @param {string[]} names @param {Lay} lay @param {(at: Square) => Look} lookOf
 * @param {Square} picked
 */
export function paintSquares(canvas, names, { left, side, number }, lookOf, picked) {
  const dense = window.devicePixelRatio || 1;
  const [width, height] = [left + number * side + 2, number * side + 2];
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(dense, 0, 0, dense, 0, 0);
  const style = getComputedStyle(canvas);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const fills = {
    ahead: colour("ahead"),
    behind: colour("behind"),
    self: colour("line"),
    "": colour("card"),
  };
  const gap = side > 6 ? 1 : 0;
  context.lineWidth = 1;
  context.strokeStyle = style.color;
  for (let row = 0; row < number; row += 1)
    for (let column = 0; column < number; column += 1) {
      const { fill, alone, framed } = lookOf([row, column]);
      context.fillStyle = fills[fill];
      context.globalAlpha = alone ? 0.45 : 1;
      context.fillRect(left + column * side, row * side, side - gap, side - gap);
      context.globalAlpha = 1;
      if (framed) context.strokeRect(left + column * side + 0.5, row * side + 0.5, side - gap - 1, side - gap - 1);
    }
  if (left) {
    context.fillStyle = style.color;
    context.font = `${HEIGHT_OF_A_NAME}px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const [row, name] of names.entries())
      context.fillText(fitted(name, left - 8, HEIGHT_OF_A_NAME), left - 6, (row + 0.5) * side);
  }
  context.strokeStyle = colour("accent");
  context.lineWidth = 2;
  context.strokeRect(left + picked[1] * side, picked[0] * side, side, side);
}

/** The square under the pointer. @param {HTMLElement} canvas @param {MouseEvent} event @param {Lay} lay */
export function squareAt(canvas, event, { left, side, number }) {
  const box = canvas.getBoundingClientRect();
  return within(
    [Math.floor((event.clientY - box.top) / side), Math.floor((event.clientX - box.left - left) / side)],
    number,
  );
}

/** A square that a step leads to from another, over the diagonal. @param {Square} from @param {Square} step @param {number} number */
export function stepped([row, column], step, number) {
  do {
    row += step[0];
    column += step[1];
  } while (row === column && within([row, column], number));
  return within([row, column], number);
}

/** @param {Square} place @param {number} number @returns {Square | null} */
function within([row, column], number) {
  return row >= 0 && column >= 0 && row < number && column < number ? [row, column] : null;
}
