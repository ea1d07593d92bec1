// Shared by charts: scales, ticks, axes, marks of intervals and verdicts, and colours in an even order.

import { h, s } from "./dom.js";
import { verdictWord } from "./facts.js";
import { plain } from "./text.js";
/** @import { Child } from "./dom.js" */

/** @typedef {(value: number) => number} Scale */
/** @typedef {{x: Scale, y: Scale, left: number, right: number, low: number, high: number}} Plane of a chart, in pixels */

/** A linear map. @param {number} from @param {number} to @param {number} start @param {number} end @returns {Scale} */
export function linear(from, to, start, end) {
  const slope = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * slope;
}

/** About `count` round numbers. @param {number} from @param {number} to @param {number} count @returns {number[]} */
export function ticks(from, to, count, whole = false) {
  if (!(to > from)) return [from];
  const rough = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = power * ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10);
  if (whole) step = Math.max(1, Math.round(step));
  const values = [];
  for (let factor = Math.ceil(from / step - 1e-9); factor * step <= to + step * 1e-9; factor += 1)
    values.push(Number((factor * step).toPrecision(12)));
  return values;
}

/**
 * Scales over whole numbers across and values upwards; a value beyond the range is drawn at its edge.
 * @param {[number, number]} across @param {[number, number]} up
 * @param {{left: number, right: number, top: number, bottom: number}} box @returns {Plane}
 */
export function planeOf([first, last], [low, high], { left, right, top, bottom }) {
  const y = linear(low, high, bottom, top);
  const [least, most] = [Math.min(low, high), Math.max(low, high)];
  return {
    x: linear(first, Math.max(last, first + 1), left, right),
    y: (value) => y(Math.min(Math.max(value, least), most)),
    left,
    right,
    low,
    high,
  };
}

/**
 * A chart over whole numbers: numbers at its left and below, and what `draw` puts on its plane.
 * @param {{label: string, caption?: Child, width: number, height: number, right?: number, across: [number, number],
 *   unit: string, up: [number, number], levels?: number[], marks?: number[], format: (value: number) => string,
 *   mark?: (value: number) => string}} options the room at the right, the unit of what runs across, and the numbers at
 *   the left and below with their formats
 * @param {(plane: Plane) => Child} draw
 */
export function plot({ label, caption, width, height, right = 16, across, unit, up, ...given }, draw) {
  const bottom = height - 40;
  const plane = planeOf(across, up, { left: 46, right: width - right, top: 14, bottom });
  const levels = given.levels ?? ticks(Math.min(...up), Math.max(...up), 6);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, [
    levels.map((level) => {
      const y = plane.y(level);
      const text = { class: "tick", x: plane.left - 8, y, dy: "0.32em", "text-anchor": "end" };
      return [
        s("line", { class: "grid", x1: plane.left, x2: plane.right, y1: y, y2: y }),
        s("text", text, given.format(level)),
      ];
    }),
    (given.marks ?? ticks(...across, (plane.right - plane.left) / 55, true)).map((value) =>
      s(
        "text",
        { class: "tick", x: plane.x(value), y: bottom + 16, "text-anchor": "middle" },
        given.mark?.(value) ?? value,
      ),
    ),
    s("text", { class: "tick title", x: plane.right, y: bottom + 32, "text-anchor": "end" }, unit),
    draw(plane),
  ]);
  return h("figure", { class: "chart" }, [
    h("div", { class: "scroll" }, svg),
    caption ? h("figcaption", null, caption) : null,
  ]);
}

const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

/** The width of a text in a chart, in pixels. @param {string} text */
function textWidth(text) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Foreign text cut in the middle until it fits. @param {string} text @param {number} room */
export function fitted(text, room) {
  let longest = 80;
  let shown = plain(text, longest);
  while (longest > 4 && textWidth(shown) > room) {
    longest = Math.min(longest, shown.length) - 1;
    shown = plain(text, longest);
  }
  return shown;
}

/** How much room labels need, at most so much. @param {string[]} texts @param {number} most */
export function roomFor(texts, most) {
  return Math.min(most, Math.max(0, ...texts.map((text) => textWidth(plain(text)))));
}

/** A path; points without a number interrupt it. @param {[number, number | null][]} points @param {Plane} plane */
export function line(points, { x, y }) {
  let path = "";
  let drawing = false;
  for (const [across, up] of points) {
    const isPlaced = up !== null && Number.isFinite(up);
    const corner = isPlaced ? `${x(across).toFixed(1)} ${y(up).toFixed(1)}` : "";
    if (isPlaced) path += drawing ? `L${corner}` : `M${corner}h0`; // a point alone is a dot
    drawing = isPlaced;
  }
  return path;
}

/** The area between two curves. @param {[across: number, low: number, high: number][]} points @param {Plane} plane */
export function band(points, { x, y }) {
  if (points.length < 2) return "";
  const above = points.map(([across, , high]) => `${x(across).toFixed(1)} ${y(high).toFixed(1)}`);
  const below = points.map(([across, low]) => `${x(across).toFixed(1)} ${y(low).toFixed(1)}`).reverse();
  return `M${above.join("L")}L${below.join("L")}Z`;
}

/**
 * An interval with its estimate on a line of its own, over lines at `marks`; `x` gives places in percent of the width.
 * @param {(value: number) => string} x @param {{value: number, lo: number | null, hi: number | null} | null} interval
 * @param {number[]} marks @param {string} label
 */
export function intervalPlot(x, interval, marks, label) {
  const [whisker, dot] = [
    { class: "whisker", y1: "50%", y2: "50%" },
    { class: "dot", cy: "50%", r: 4 },
  ];
  return s("svg", { role: "img", "aria-label": label }, [
    marks.map((value) => s("line", { class: "grid", x1: x(value), x2: x(value), y1: 0, y2: "100%" })),
    interval === null || interval.lo === null || interval.hi === null
      ? null
      : s("line", { ...whisker, x1: x(interval.lo), x2: x(interval.hi) }),
    interval === null ? null : s("circle", { ...dot, cx: x(interval.value) }),
  ]);
}

/**
 * Outlines of signs, each of its own shape, so that colour is never needed.
 * @type {Record<string, (x: number, y: number, r: number) => string>}
 */
const OUTLINES = {
  tied: (x, y, r) => `M${x - r} ${y - r * 0.45}h${2 * r}M${x - r} ${y + r * 0.45}h${2 * r}`,
  undecided_by_labels: (x, y, r) => `M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`,
  out_of_reach: (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
  blocked: (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}zm0 ${2 * r}l${2 * r} ${-2 * r}`,
};

/** The sign of a verdict. @param {string} verdict @param {number} x @param {number} y @param {number} size */
export function sign(verdict, x, y, size) {
  const outline = OUTLINES[verdict];
  if (outline) return s("path", { class: `sign v-${verdict}`, d: outline(x, y, size) });
  return s("circle", { class: `sign v-${verdict}`, cx: x, cy: y, r: verdict === "open" ? size - 0.75 : size });
}

/** A verdict as sign and word. @param {string} verdict @param {Child} [text] */
export function badge(verdict, text = verdictWord(verdict)) {
  const icon = { class: "icon", viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" };
  return h("span", { class: `badge v-${verdict}` }, s("svg", icon, sign(verdict, 7, 7, 4.5)), text);
}

const AREAS_BY_DAY = ["#f1f5f0", "#bee0ce", "#6ebebe", "#2a84b0", "#164a8c", "#0a1854"];
const AREAS_BY_NIGHT = ["#18202c", "#183e68", "#1c709e", "#42a8ac", "#96d6b2", "#f6f4be"];
const LINES_BY_DAY = ["#400c5c", "#2e5a91", "#0e7876", "#46882c", "#a67000"];
const LINES_BY_NIGHT = ["#cd96eb", "#78aff5", "#46c8b9", "#96d25a", "#f5cd50"];
const night = matchMedia("screen and (prefers-color-scheme: dark)");

/** Calls back when the reader changes between light and dark. @param {() => void} handle */
export function onNight(handle) {
  night.addEventListener("change", handle);
}

/** A colour for a share in [0, 1], whose lightness grows or falls evenly. @param {number} share */
export function ramp(share) {
  return mixed(night.matches ? AREAS_BY_NIGHT : AREAS_BY_DAY, share);
}

/** A colour for a line of several, readable on the page. @param {number} index @param {number} lines */
export function lineColour(index, lines) {
  return mixed(night.matches ? LINES_BY_NIGHT : LINES_BY_DAY, lines < 2 ? 0 : index / (lines - 1));
}

/** @param {string[]} stops @param {number} share */
function mixed(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const from = Math.min(Math.floor(place), stops.length - 2);
  const channels = [1, 3, 5].map((digit) => {
    const [first, second] = [from, from + 1].map((stop) => parseInt(stops[stop].slice(digit, digit + 2), 16));
    return Math.round(first + (place - from) * (second - first));
  });
  return `rgb(${channels.join(" ")})`;
}
