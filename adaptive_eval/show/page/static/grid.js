// A grid of cells on a canvas, since there may be thousands: one stop for the Tab key, arrow keys that move (Home to
// the first), Enter or a click that opens, and a line beneath that describes the cell.

import { fitted, roomFor } from "./chart.js";
import { h, on } from "./dom.js";
/** @import { State } from "./parts.js" */

/** @typedef {[row: number, column: number]} Place */
/** @typedef {{left: number, top: number, width: number, height: number}} Box */
/** @typedef {CanvasRenderingContext2D & {ink: (name: string) => string}} Pen with the colours of the style sheet */

/**
 * What a grid shows: sizes are in pixels, `left` is the room for the names of the rows, `heads` stand above the columns,
 * upright where these are narrow, and keys pass over cells that are empty.
 * @typedef {{rows: string[], heads?: string[], columns: number, left: number, width: number, height: number,
 *   chosen: Place | null, draw: (pen: Pen, place: Place, box: Box) => void, describe: (place: Place) => string,
 *   choose: (place: Place) => void, open?: (place: Place) => void, isEmpty?: (place: Place) => boolean}} Grid
 */

const UPRIGHT_ROOM = 130;
const FLAT_HEAD = 18;
/** @type {Record<string, Place>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Room for the names of rows, in pixels. @param {string[]} names @param {number} most */
export function namesRoom(names, most) {
  return Math.ceil(roomFor(names, most)) + 10;
}

/** The place to draw on. @param {string} label @param {string} kind */
export function grid(label, kind) {
  const role = { role: "application", "aria-roledescription": kind, "aria-label": `${label} Arrow keys move.` };
  return h("div", { class: "grid-of-cells", "data-key": "grid", "data-own": "" }, [
    h("canvas", { tabindex: 0, ...role }),
    h("output", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys."),
  ]);
}

/** How a section paints its grid, and follows keys and pointers on it. @param {(state: State) => Grid} gridOf */
export function onGrid(gridOf) {
  /** The last painted grid. @type {Grid | null} */
  let painted = null;
  const repaint = (/** @type {HTMLElement} */ root, /** @type {State} */ state) => {
    painted = gridOf(state);
    paint(root, painted);
  };
  return {
    painted: repaint,
    wire(/** @type {HTMLElement} */ root, /** @type {State} */ state) {
      const current = () => painted ?? gridOf(state);
      const choose = (/** @type {Place} */ place) => {
        current().choose(place);
        repaint(root, state);
      };
      on(root, "pointermove", "canvas", (canvas, event) => {
        const place = placeUnder(canvas, event, current());
        if (place) readOut(root, current(), place);
      });
      on(root, "click", "canvas", (canvas, event) => {
        const place = placeUnder(canvas, event, current());
        if (!place) return;
        choose(place);
        current().open?.(place);
      });
      on(root, "keydown", "canvas", (_, event) => {
        const { chosen, open } = current();
        const step = event.ctrlKey || event.metaKey || event.altKey ? undefined : STEPS[event.key];
        if (step || event.key === "Home") {
          event.preventDefault();
          const place = step && chosen ? stepFrom(current(), chosen, step) : cellAt(current(), [0, 0]);
          if (place) choose(place);
        } else if (event.key === "Enter" && chosen && open) {
          event.preventDefault(); // or the same key press would go on to the dialog, and close it
          open(chosen);
        }
      });
    },
  };
}

/** The height of what stands above the columns. @param {Grid} grid */
function headHeight({ heads, width }) {
  if (!heads?.length) return 0;
  const room = roomFor(heads, UPRIGHT_ROOM);
  return room <= width - 6 ? FLAT_HEAD : Math.ceil(room) + 8;
}

/** The box of a cell, on whole pixels, so that no seam shows. @param {Grid} grid @param {Place} place @returns {Box} */
function boxOf({ left, width, height }, [row, column], top = 0) {
  const from = Math.round(left + column * width);
  const gap = width > 6 ? 1 : 0;
  return { left: from, top: top + row * height, width: Math.round(left + (column + 1) * width) - from - gap, height };
}

/** @param {HTMLElement} root @param {Grid} grid */
function paint(root, grid) {
  const canvas = root.querySelector("canvas");
  if (!canvas) return;
  const { rows, heads = [], columns, left, width, height, chosen } = grid;
  const density = window.devicePixelRatio || 1;
  const top = headHeight(grid);
  const size = [Math.ceil(left + columns * width) + 1, top + rows.length * height + 1];
  [canvas.width, canvas.height] = size.map((pixels) => Math.round(pixels * density));
  [canvas.style.width, canvas.style.height] = size.map((pixels) => `${pixels}px`);
  const style = getComputedStyle(canvas);
  const pen = /** @type {Pen} */ (canvas.getContext("2d"));
  pen.ink = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.font = `12px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  pen.fillStyle = style.color;
  const isUpright = top > FLAT_HEAD;
  for (const [column, head] of heads.entries()) {
    const { left: from, width: room } = boxOf(grid, [0, column]);
    pen.save();
    pen.translate(from + room / 2, top - (isUpright ? 6 : 9));
    if (isUpright) pen.rotate(-Math.PI / 2);
    pen.textAlign = isUpright ? "left" : "center";
    pen.fillText(fitted(head, isUpright ? UPRIGHT_ROOM : room), 0, 0);
    pen.restore();
  }
  pen.textAlign = "right";
  for (const [row, name] of rows.entries()) {
    pen.fillStyle = style.color;
    if (left) pen.fillText(fitted(name, left - 10), left - 8, top + (row + 0.5) * height);
    for (let column = 0; column < columns; column += 1) grid.draw(pen, [row, column], boxOf(grid, [row, column], top));
  }
  if (!chosen) return;
  const box = boxOf(grid, chosen, top);
  pen.strokeStyle = pen.ink("accent");
  pen.lineWidth = 2;
  pen.strokeRect(box.left, box.top, box.width, box.height - 1);
  readOut(root, grid, chosen);
}

/** @param {HTMLElement} root @param {Grid} grid @param {Place} place */
function readOut(root, grid, place) {
  /** @type {HTMLElement} */ (root.querySelector(".readout")).textContent = grid.describe(place);
}

/** @param {HTMLElement} canvas @param {MouseEvent} event @param {Grid} grid */
function placeUnder(canvas, { clientX, clientY }, grid) {
  const box = canvas.getBoundingClientRect();
  const [down, across] = [clientY - box.top - headHeight(grid), clientX - box.left - grid.left];
  return cellAt(grid, [Math.floor(down / grid.height), Math.floor(across / grid.width)]);
}

/** The next cell that is not empty; null beyond the edge. @param {Grid} grid @param {Place} from @param {Place} step */
function stepFrom(grid, [row, column], step) {
  do {
    row += step[0];
    column += step[1];
  } while (grid.isEmpty?.([row, column]) && row >= 0 && column >= 0 && row < grid.rows.length);
  return cellAt(grid, [row, column]);
}

/** A place, if it is a cell. @param {Grid} grid @param {Place} place @returns {Place | null} */
function cellAt({ rows, columns, isEmpty }, place) {
  const [row, column] = place;
  const isInside = row >= 0 && column >= 0 && row < rows.length && column < columns;
  return isInside && !isEmpty?.(place) ? place : null;
}
