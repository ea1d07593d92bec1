// What charts share: scales, ticks, axes, the signs of verdicts, colours that grow in order.

import { h, s } from "./dom.js";
import { verdictWord } from "./facts.js";
import { plain } from "./text.js";
/** @import { Child } from "./dom.js" */

/** @typedef {(value: number) => number} Scale */

/**
 * A linear map from [from, to] to [start, end].
 * @param {number} from @param {number} to @param {number} start @param {number} end @returns {Scale}
 */
export function linear(from, to, start, end) {
  const slope = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * slope;
}

/**
 * Round numbers within [from, to], about `wanted` of them; whole ones alone where `whole`.
 * @param {number} from @param {number} to @param {number} wanted @returns {number[]}
 */
export function ticks(from, to, wanted, whole = false) {
  if (!(to > from)) return [from];
  const rough = (to - from) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = power * ([1, 2, 5].find((one) => one * power >= rough * 0.999) ?? 10);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1)
    found.push(Number((at * step).toPrecision(12)));
  return found;
}

/**
 * A chart: an SVG with a name and a description, in a figure with a caption.
 * @param {{label: string, caption?: Child, width: number, height: number, className?: string}} given
 * @param {...Child} content
 */
export function figure({ label, caption, width, height, className = "" }, ...content) {
  return h("figure", { class: `chart ${className}` }, [
    h(
      "div",
      { class: "scroll" },
      s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, content),
    ),
    caption ? h("figcaption", null, caption) : null,
  ]);
}

/**
 * Lines across, with their numbers at the left.
 * @param {number[]} values
 * @param {Scale} y
 * @param {number} left
 * @param {number} right
 * @param {(value: number) => string} format
 */
export function horizontalLines(values, y, left, right, format) {
  return values.map((value) => [
    s("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: left - 8, y: y(value), dy: "0.32em", "text-anchor": "end" }, format(value)),
  ]);
}

/**
 * Numbers under the chart.
 * @param {number[]} values
 * @param {Scale} x
 * @param {number} bottom
 * @param {(value: number) => string} format
 * @param {string} title
 * @param {number} right
 */
export function bottomTicks(values, x, bottom, format, title, right) {
  return [
    values.map((value) =>
      s("text", { class: "tick", x: x(value), y: bottom + 16, "text-anchor": "middle" }, format(value)),
    ),
    title ? s("text", { class: "tick title", x: right, y: bottom + 32, "text-anchor": "end" }, title) : null,
  ];
}

const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

/** The width of a text in a chart, in pixels. @param {string} text */
function textWidth(text, size = 12, weight = 400) {
  pen.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Foreign text cut in the middle until it fits. @param {string} text @param {number} room */
export function fitted(text, room, size = 12, weight = 400) {
  let longest = 80;
  let shown = plain(text, longest);
  while (longest > 4 && textWidth(shown, size, weight) > room) {
    longest = Math.min(longest, shown.length) - 1;
    shown = plain(text, longest);
  }
  return shown;
}

/** How much room labels need, at most so much. @param {string[]} texts @param {number} most */
export function roomFor(texts, most, size = 12, weight = 400) {
  return Math.min(most, Math.max(0, ...texts.map((text) => textWidth(plain(text), size, weight))));
}

/**
 * A path through points; a point without a number interrupts it.
 * @param {[number, number | null][]} points @param {Scale} x @param {(value: number) => number | null} y
 */
export function line(points, x, y) {
  let path = "";
  let drawing = false;
  for (const [across, up] of points) {
    const at = up === null ? null : y(up);
    if (at !== null) path += `${drawing ? "L" : "M"}${x(across).toFixed(1)} ${at.toFixed(1)}`;
    drawing = at !== null;
  }
  return path;
}

/**
 * The area between two curves over the same places.
 * @template P
 * @param {P[]} points
 * @param {(point: P) => number} x
 * @param {(point: P) => number} yLow
 * @param {(point: P) => number} yHigh
 */
export function band(points, x, yLow, yHigh) {
  if (points.length < 2) return "";
  const there = points.map((point) => `${x(point).toFixed(1)} ${yHigh(point).toFixed(1)}`);
  const back = [...points].reverse().map((point) => `${x(point).toFixed(1)} ${yLow(point).toFixed(1)}`);
  return `M${there.join("L")}L${back.join("L")}Z`;
}

/**
 * The sign of a verdict: each has its own shape, so that colour is never needed.
 * @param {string} verdict @param {number} x @param {number} y
 */
export function sign(verdict, x, y, size = 5) {
  const at = { class: `sign v-${verdict}`, "data-verdict": verdict };
  if (verdict === "resolved") return s("circle", { ...at, cx: x, cy: y, r: size });
  if (verdict === "tied")
    return s("path", {
      ...at,
      d: `M${x - size} ${y - size * 0.45}h${2 * size}M${x - size} ${y + size * 0.45}h${2 * size}`,
    });
  if (verdict === "open") return s("circle", { ...at, cx: x, cy: y, r: size - 0.75 });
  if (verdict === "undecided_by_labels")
    return s("path", { ...at, d: `M${x} ${y - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}z` });
  if (verdict === "out_of_reach")
    return s("path", {
      ...at,
      d: `M${x - size} ${y - size}l${2 * size} ${2 * size}m0 ${-2 * size}l${-2 * size} ${2 * size}`,
    });
  return s("path", {
    ...at,
    d: `M${x - size} ${y - size}h${2 * size}v${2 * size}h${-2 * size}zm0 ${2 * size}l${2 * size} ${-2 * size}`,
  });
}

/** A verdict as sign and word. @param {string} verdict @param {Child} [text] */
export function badge(verdict, text = verdictWord(verdict)) {
  return h("span", { class: `badge v-${verdict}` }, signIcon(verdict), text);
}

/** @param {string} verdict */
export function signIcon(verdict) {
  return s(
    "svg",
    { class: "icon", viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" },
    sign(verdict, 7, 7, 4.5),
  );
}

const LIGHT = [
  [241, 245, 240],
  [190, 224, 206],
  [110, 190, 190],
  [42, 132, 176],
  [22, 74, 140],
  [10, 24, 84],
];
const DARK = [
  [24, 32, 44],
  [24, 62, 104],
  [28, 112, 158],
  [66, 168, 172],
  [150, 214, 178],
  [246, 244, 190],
];
const LINES_LIGHT = [
  [64, 12, 92],
  [46, 90, 145],
  [14, 120, 118],
  [70, 136, 44],
  [166, 112, 0],
];
const LINES_DARK = [
  [205, 150, 235],
  [120, 175, 245],
  [70, 200, 185],
  [150, 210, 90],
  [245, 205, 80],
];
const night = matchMedia("screen and (prefers-color-scheme: dark)");

/** Calls back when the reader changes between light and dark. @param {() => void} handle */
export function onNight(handle) {
  night.addEventListener("change", handle);
}

/** A colour for a share in [0, 1], whose lightness grows or falls evenly. @param {number} share */
export function ramp(share) {
  return mixed(night.matches ? DARK : LIGHT, share);
}

/** A colour for one of many lines, readable on the page. @param {number} share */
export function lineColour(share) {
  return mixed(night.matches ? LINES_DARK : LINES_LIGHT, share);
}

/** @param {number[][]} stops @param {number} share */
function mixed(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const from = Math.min(Math.floor(at), stops.length - 2);
  const part = at - from;
  const channels = stops[from].map((one, channel) => Math.round(one + part * (stops[from + 1][channel] - one)));
  return `rgb(${channels.join(" ")})`;
}
