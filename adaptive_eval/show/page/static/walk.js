// One comparison on its way: z against its boundary over the looks, small in a row of many or large with its data.

import { badge, band, bottomTicks, figure, fitted, horizontalLines, line, linear, sign, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { SETTLED, WIDTH_95, againstText, isPrecision, pairText, score, verdictWord, zText } from "./facts.js";
import { data } from "./parts.js";
import { chance, number, percent, plain } from "./text.js";

const FEW = 60;
const SMALL = { width: 216, height: 104, top: 8, right: 10, bottom: 8, left: 10 };

/** A comparison in words, by who is ahead now. */
export function titleOf(facts, one, longest = 40) {
  return pairText(facts, { better: one.first, worse: one.second }, longest);
}

/** The curves of a comparison: of z, or for the objective precision of half the interval's width. */
function curvesOf(facts, one) {
  if (isPrecision(facts)) {
    const goal = facts.decisions.objective.half_width;
    return {
      value: (point) => WIDTH_95 * point.sigma,
      upper: () => goal,
      lower: null,
      tie: () => null,
      label: (value) => score(facts, value),
      title: "half of the 95% interval",
    };
  }
  return {
    value: (point) => point.z,
    upper: (point) => point.boundary,
    lower: (point) => -point.boundary,
    tie: (point) => point.tie,
    label: (value) => number(value, Number.isInteger(value) ? 0 : 1),
    title: `z, positive where ${plain(one.first, 30)} is ahead`,
  };
}

/** Where looks and values lie; what is beyond the extent lies at its edge. */
function planeOf(points, extent, [left, right], [bottom, top]) {
  const first = points[0].look;
  const clip = (value) => Math.min(Math.max(value, extent[0]), extent[1]);
  const y = linear(extent[0], extent[1], bottom, top);
  return {
    extent,
    x: linear(first, Math.max(points.at(-1).look, first + 1), left, right),
    y: (value) => (value === null || !Number.isFinite(value) ? null : y(clip(value))),
  };
}

/** The comparison as a button among others, on a scale that all share. */
export function small(facts, one, pair, chosen) {
  const { width, height, top, right, bottom, left } = SMALL;
  const curves = curvesOf(facts, one);
  const points = one.points;
  const extent = isPrecision(facts) ? [0, 3 * curves.upper(points[0])] : [-4.6, 4.6];
  const plane = planeOf(points, extent, [left, width - right - 6], [height - bottom, top]);
  const last = points.at(-1);
  return h(
    "button",
    { type: "button", class: "panel", "data-key": one.key, "data-pair": one.key, "aria-pressed": String(chosen) },
    h("span", { class: "title" }, plain(pair.better, 40)),
    h("span", { class: "title second" }, pair.worse === null ? againstText(facts) : `over ${plain(pair.worse, 40)}`),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      backdrop(points, curves, plane),
      walked(points, curves, plane),
      marked(last, pair.verdict, curves, plane, 5),
    ),
    h("span", { class: "below" }, badge(pair.verdict), h("span", { class: "digits" }, zText(pair))),
  );
}

/** The way of z, with a gap over the looks at which the two were not compared. */
function walked(points, curves, { x, y }) {
  const corners = points.flatMap((point, at) => [
    ...(gapBefore(points, at) ? [[point.look, null]] : []),
    [point.look, curves.value(point)],
  ]);
  return s("path", { class: "curve", d: line(corners, x, y) });
}

/** The sign of a verdict where z was then. */
function marked(point, verdict, curves, { x, y }, size) {
  const at = y(curves.value(point));
  return at === null ? null : sign(verdict, x(point.look), at, size);
}

function gapBefore(points, at) {
  return at > 0 && points[at - 1].look < points[at].look - 1;
}

/** There are looks at which the two were not compared. */
export function hasGap(points) {
  return points.some((_, at) => gapBefore(points, at));
}

function alone(points, at) {
  return (at === 0 || gapBefore(points, at)) && (at === points.length - 1 || gapBefore(points, at + 1));
}

/** The regions in which a comparison is called, and the boundary itself. */
function backdrop(points, curves, { x, y, extent }) {
  const bounded = points.filter((point) => curves.upper(point) !== null);
  const tied = bounded.filter((point) => (curves.tie(point) ?? 0) > 0);
  const look = (point) => x(point.look);
  const area = (name, members, low, high) =>
    s("path", {
      class: name,
      d: band(
        members,
        look,
        (point) => y(low(point)),
        (point) => y(high(point)),
      ),
    });
  const edge = (value) =>
    s("path", {
      class: "boundary",
      d: line(
        bounded.map((point) => [point.look, value(point)]),
        x,
        y,
      ),
    });
  const [bottom, top] = extent.map((value) => () => value);
  if (!curves.lower) return [area("called", bounded, bottom, curves.upper), edge(curves.upper)];
  return [
    area("called", bounded, curves.upper, top),
    area("called", bounded, bottom, curves.lower),
    area("wedge", tied, (point) => -curves.tie(point), curves.tie),
    s("line", { class: "zero", x1: x(points[0].look), x2: x(points.at(-1).look), y1: y(0), y2: y(0) }),
    edge(curves.upper),
    edge(curves.lower),
  ];
}

/** The comparison over the whole width. */
export function large(state, one, pair) {
  const { facts } = state;
  const width = Math.max(state.width, 280);
  const height = width < 560 ? 280 : 340;
  const frame = { left: 46, right: 16, top: 14, bottom: 40 };
  const curves = curvesOf(facts, one);
  const points = one.points;
  const [start, end, ground] = [frame.left, width - frame.right, height - frame.bottom];
  const extent = extentOf(points, curves);
  const plane = planeOf(points, extent, [start, end], [ground, frame.top]);
  const title = titleOf(facts, one);
  const chart = figure(
    {
      label: `${title}: ${summaryOf(facts, one, pair)}`,
      caption: summaryOf(facts, one, pair),
      width,
      height,
      className: "wide",
    },
    backdrop(points, curves, plane),
    horizontalLines(ticks(extent[0], extent[1], 6), plane.y, start, end, curves.label),
    bottomTicks(ticks(points[0].look, points.at(-1).look, width / 90, true), plane.x, ground, String, "look", end),
    regionLabels(facts, one, curves, plane, width / 3),
    walked(points, curves, plane),
    points.filter((point, at) => points.length <= FEW || alone(points, at)).map((point) => dot(point, curves, plane)),
    marks(points).map((point) => marked(point, point.verdict, curves, plane, 6.5)),
  );
  return h(
    "div",
    { class: "large" },
    h("h3", null, title, " ", badge(points.at(-1).verdict)),
    h("p", { class: "axis" }, curves.title),
    chart,
    dataTable(facts, one, curves),
  );
}

function dot(point, curves, { x, y }) {
  const at = y(curves.value(point));
  return at === null ? null : s("circle", { class: "point", cx: x(point.look), cy: at, r: 2.2 });
}

function extentOf(points, curves) {
  const values = points
    .flatMap((point) => [curves.value(point), curves.upper(point), curves.lower ? curves.lower(point) : 0])
    .filter((value) => value !== null && Number.isFinite(value));
  const [from, to] = [Math.min(...values, 0), Math.max(...values, 0)];
  const room = 0.08 * (to - from || 1);
  return [curves.lower ? from - room : 0, to + room];
}

/** Looks at which the verdict became another one. */
function marks(points) {
  return points.filter(
    (point, at) =>
      at === points.length - 1 || (point.verdict !== (points[at - 1]?.verdict ?? "open") && point.verdict !== "open"),
  );
}

/** What it means to lie in each region, written where the curve does not end. */
function regionLabels(facts, one, curves, { x, y, extent }, room) {
  if (!curves.lower) return null;
  const bounded = one.points.filter((point) => point.boundary !== null);
  const right = x(one.points.at(-1).look) - 6;
  const label = (at, text, className = "region") =>
    s("text", { class: className, x: right, y: at, "text-anchor": "end" }, text);
  if (!bounded.length) return label(y(0) - 8, "too early for a call");
  const last = bounded.at(-1);
  const end = y(one.points.at(-1).z) ?? 0;
  const free = (...places) => places.sort((first, second) => Math.abs(second - end) - Math.abs(first - end))[0];
  const wedge = Math.max(0, curves.tie(last) ?? 0);
  const value = againstText(facts).replace("against ", "");
  const better = (name) => `${fitted(name, room)} is better`;
  return [
    label(free(y(extent[1]) + 16, y(last.boundary) - 8), one.second === null ? `above ${value}` : better(one.first)),
    label(free(y(extent[0]) - 8, y(-last.boundary) + 17), one.second === null ? `below ${value}` : better(one.second)),
    y(-wedge) - y(wedge) > 30 ? label(free(y(wedge) + 15, y(-wedge) - 7), "tied", "region tie") : null,
  ];
}

function summaryOf(facts, one, pair) {
  const last = one.points.at(-1);
  const called = one.points.find((point) => point.verdict === last.verdict && SETTLED.has(point.verdict));
  const parts = [`${verdictWord(last.verdict)}${called ? ` at look ${called.look}` : ""}`];
  if (isPrecision(facts))
    parts.push(
      `half of the interval is ${score(facts, WIDTH_95 * last.sigma, 2)}`,
      `asked for ${score(facts, facts.decisions.objective.half_width, 2)}`,
    );
  else
    parts.push(
      `z ${number(last.z)}${last.boundary === null ? ", too early for a call" : ` against ${number(last.boundary)}`}`,
    );
  if (last.information !== null)
    parts.push(`${percent(Math.min(1, last.information))} of the information at the horizon`);
  if (pair?.rho !== null && pair?.rho !== undefined) parts.push(`ρ ${chance(pair.rho)}`);
  if (pair?.power !== null && pair?.power !== undefined && !SETTLED.has(last.verdict))
    parts.push(`chance to be settled ${percent(pair.power)}`);
  return parts.join("; ");
}

function dataTable(facts, one, curves) {
  const shown = isPrecision(facts) ? (value) => score(facts, value, 2) : (value) => number(value);
  const head = [
    "Look",
    isPrecision(facts) ? "Half width" : "z",
    isPrecision(facts) ? "Asked for" : "Boundary",
    "Information",
    "Verdict",
  ];
  const rows = one.points.map((point) => [
    point.look,
    shown(curves.value(point)),
    shown(curves.upper(point)),
    percent(point.information, 1),
    verdictWord(point.verdict),
  ]);
  return data(titleOf(facts, one), { head, rows, texts: 5 }, `data-${one.key}`);
}
