// One comparison on its way: z against its boundary over the looks, small in a row of many or large with its data.

import { badge, band, bottomTicks, figure, fitted, horizontalLines, line, linear, sign, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { SETTLED, WIDTH_95, againstText, comparesNothing, last, pairText, score, verdictWord, zText } from "./facts.js";
import { data } from "./parts.js";
import { term } from "./terms.js";
import { chance, number, percent, plain } from "./text.js";
/** @import { Scale } from "./chart.js" */
/** @import { Facts, Pair, Point, Series } from "./facts.js" */
/** @import { State } from "./parts.js" */

/** @typedef {(point: Point) => number | null} Curve */

/**
 * @typedef {object} Curves
 * @property {(point: Point) => number | null} value
 * @property {(point: Point) => number | null} upper
 * @property {((point: Point) => number | null) | null} lower
 * @property {(point: Point) => number | null} tie
 * @property {(value: number) => string} label
 * @property {string} title
 */

/**
 * Where things lie, in pixels; `y` of what is unknown is null.
 * @typedef {object} Plane
 * @property {[number, number]} extent
 * @property {Scale} x
 * @property {Scale} level
 * @property {(value: number | null) => number | null} y
 */

const FEW = 60;
const SMALL = { width: 216, height: 104, top: 8, right: 10, bottom: 8, left: 10 };

/** A comparison in words, by who is ahead now. @param {Facts} facts @param {Series} one */
export function titleOf(facts, one, longest = 40) {
  return pairText(facts, { better: one.first, worse: one.second }, longest);
}

/**
 * The curves of a comparison: of z, or for the objective precision of half the interval's width.
 * @param {Facts} facts @param {Series} one @returns {Curves}
 */
function curvesOf(facts, one) {
  if (comparesNothing(facts)) {
    const goal = facts.objective.half_width ?? 0;
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
    lower: (point) => (point.boundary === null ? null : -point.boundary),
    tie: (point) => point.tie,
    label: (value) => number(value, Number.isInteger(value) ? 0 : 1),
    title: facts.gate
      ? `${facts.gate.z}, positive speaks for a pass`
      : `z, positive where ${plain(one.first, 30)} is ahead`,
  };
}

/**
 * Where looks and values lie; what is beyond the extent lies at its edge.
 * @param {Point[]} points
 * @param {[number, number]} extent
 * @param {[number, number]} across
 * @param {[number, number]} up
 * @returns {Plane}
 */
function planeOf(points, extent, [left, right], [bottom, top]) {
  const first = points[0].look;
  const free = linear(extent[0], extent[1], bottom, top);
  const level = (/** @type {number} */ value) => free(Math.min(Math.max(value, extent[0]), extent[1]));
  return {
    extent,
    x: linear(first, Math.max(last(points).look, first + 1), left, right),
    level,
    y: (value) => (value === null || !Number.isFinite(value) ? null : level(value)),
  };
}

/**
 * The comparison as a button among others, on a scale that all share.
 * @param {Facts} facts @param {Series} one @param {Pair} pair @param {boolean} chosen
 */
export function small(facts, one, pair, chosen) {
  const { width, height, top, right, bottom, left } = SMALL;
  const curves = curvesOf(facts, one);
  const points = one.points;
  /** @type {[number, number]} */
  const extent = comparesNothing(facts) ? [0, 3 * (curves.upper(points[0]) ?? 0)] : [-4.6, 4.6];
  const plane = planeOf(points, extent, [left, width - right - 6], [height - bottom, top]);
  return h(
    "button",
    { type: "button", class: "panel", "data-key": one.key, "data-pair": one.key, "aria-pressed": String(chosen) },
    [
      h("span", { class: "title" }, plain(pair.better, 40)),
      h(
        "span",
        { class: "title second" },
        pair.worse === null ? againstText(facts) : `${facts.over} ${plain(pair.worse, 40)}`,
      ),
      s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, [
        backdrop(points, curves, plane),
        walked(points, curves, plane),
        marked(last(points), pair.verdict, curves, plane, 5),
      ]),
      h("span", { class: "below" }, badge(pair.verdict, pair.word), h("span", { class: "digits" }, zText(pair))),
    ],
  );
}

/**
 * The way of z, with a gap over the looks at which the two were not compared.
 * @param {Point[]} points @param {Curves} curves @param {Plane} given
 */
function walked(points, curves, { x, y }) {
  /** @type {[number, number | null][]} */
  const corners = [];
  for (const [at, point] of points.entries()) {
    if (gapBefore(points, at)) corners.push([point.look, null]);
    corners.push([point.look, curves.value(point)]);
  }
  return s("path", { class: "curve", d: line(corners, x, y) });
}

/**
 * The sign of a verdict where z was then.
 * @param {Point} point @param {string} verdict @param {Curves} curves @param {Plane} given @param {number} size
 */
function marked(point, verdict, curves, { x, y }, size) {
  const at = y(curves.value(point));
  return at === null ? null : sign(verdict, x(point.look), at, size);
}

/** @param {Point[]} points @param {number} at */
function gapBefore(points, at) {
  return at > 0 && points[at - 1].look < points[at].look - 1;
}

/** There are looks at which the two were not compared. @param {Point[]} points */
export function hasGap(points) {
  return points.some((_, at) => gapBefore(points, at));
}

/** @param {Point[]} points @param {number} at */
function alone(points, at) {
  return (at === 0 || gapBefore(points, at)) && (at === points.length - 1 || gapBefore(points, at + 1));
}

/**
 * The regions in which a comparison is called, and the boundary itself.
 * @param {Point[]} points @param {Curves} curves @param {Plane} given
 */
function backdrop(points, curves, { x, y, level, extent }) {
  const bounded = points.filter((point) => curves.upper(point) !== null);
  const tied = bounded.filter((point) => (curves.tie(point) ?? 0) > 0);
  const look = (/** @type {Point} */ point) => x(point.look);
  /** @param {string} name @param {Point[]} members @param {Curve} low @param {Curve} high */
  const area = (name, members, low, high) =>
    s("path", {
      class: name,
      d: band(
        members,
        look,
        (point) => level(low(point) ?? 0),
        (point) => level(high(point) ?? 0),
      ),
    });
  const edge = (/** @type {Curve} */ value) =>
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
    area("wedge", tied, (point) => -(curves.tie(point) ?? 0), curves.tie),
    s("line", { class: "zero", x1: x(points[0].look), x2: x(last(points).look), y1: level(0), y2: level(0) }),
    edge(curves.upper),
    edge(curves.lower),
  ];
}

/** The comparison over the whole width. @param {State} state @param {Series} one @param {Pair | undefined} pair */
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
  const summary = summaryOf(facts, one, pair);
  const chart = figure(
    {
      label: `${title}: ${summary.map(({ text }) => text).join("; ")}`,
      caption: summary.map(({ key, text }, at) => [at ? "; " : "", key ? term(key, text) : text]),
      width,
      height,
      className: "wide",
    },
    [
      backdrop(points, curves, plane),
      horizontalLines(ticks(extent[0], extent[1], 6), plane.level, start, end, curves.label),
      bottomTicks(ticks(points[0].look, last(points).look, width / 90, true), plane.x, ground, String, "look", end),
      regionLabels(facts, one, curves, plane, width / 3),
      walked(points, curves, plane),
      points.filter((_, at) => points.length <= FEW || alone(points, at)).map((point) => dot(point, curves, plane)),
      marks(points).map((point) => marked(point, point.verdict, curves, plane, 6.5)),
    ],
  );
  return h("div", { class: "large" }, [
    h("h3", null, title, " ", pair ? badge(pair.verdict, pair.word) : badge(last(points).verdict)),
    h("p", { class: "axis" }, curves.title),
    chart,
    dataTable(facts, one, curves, pair),
  ]);
}

/** @param {Point} point @param {Curves} curves @param {Plane} given */
function dot(point, curves, { x, y }) {
  const at = y(curves.value(point));
  return at === null ? null : s("circle", { class: "point", cx: x(point.look), cy: at, r: 2.2 });
}

/** @param {Point[]} points @param {Curves} curves @returns {[number, number]} */
function extentOf(points, curves) {
  const values = points
    .flatMap((point) => [curves.value(point), curves.upper(point), curves.lower ? curves.lower(point) : 0])
    .filter((value) => value !== null)
    .filter(Number.isFinite);
  const [from, to] = [Math.min(...values, 0), Math.max(...values, 0)];
  const room = 0.08 * (to - from || 1);
  return [curves.lower ? from - room : 0, to + room];
}

/** Looks at which the verdict became another one. @param {Point[]} points @returns {Point[]} */
function marks(points) {
  return points.filter(
    (point, at) =>
      at === points.length - 1 || (point.verdict !== (points[at - 1]?.verdict ?? "open") && point.verdict !== "open"),
  );
}

/**
 * What it means to lie in each region, written where the curve does not end.
 * @param {Facts} facts @param {Series} one @param {Curves} curves @param {Plane} given @param {number} room
 */
function regionLabels(facts, one, curves, { x, y, level, extent }, room) {
  if (!curves.lower) return null;
  const bounded = one.points.filter((point) => point.boundary !== null);
  const right = x(last(one.points).look) - 6;
  const label = (/** @type {number} */ at, /** @type {string} */ text, className = "region") =>
    s("text", { class: className, x: right, y: at, "text-anchor": "end" }, text);
  if (!bounded.length) return label(level(0) - 8, "too early for a call");
  const latest = last(bounded);
  const boundary = latest.boundary ?? 0;
  const end = y(last(one.points).z) ?? 0;
  const free = (/** @type {number[]} */ ...places) =>
    places.sort((first, second) => Math.abs(second - end) - Math.abs(first - end))[0];
  const wedge = Math.max(0, curves.tie(latest) ?? 0);
  const value = againstText(facts).replace("against ", "");
  const better = (/** @type {string} */ name) => `${fitted(name, room)} is better`;
  const [above, below] = facts.gate
    ? ["passes", "fails"]
    : one.second === null
      ? [`above ${value}`, `below ${value}`]
      : [better(one.first), better(one.second)];
  return [
    label(free(level(extent[1]) + 16, level(boundary) - 8), above),
    label(free(level(extent[0]) - 8, level(-boundary) + 17), below),
    level(-wedge) - level(wedge) > 30 ? label(free(level(wedge) + 15, level(-wedge) - 7), "tied", "region tie") : null,
  ];
}

/**
 * Where a comparison stands, as parts of a sentence; `key` is the word of the glossary that explains one.
 * @param {Facts} facts
 * @param {Series} one
 * @param {Pair | undefined} pair
 * @returns {{key?: TermKey, text: string}[]}
 */
function summaryOf(facts, one, pair) {
  const now = last(one.points);
  /** @type {{key?: TermKey, text: string}[]} */
  const parts = [{ key: /** @type {TermKey} */ (now.verdict), text: calledText(facts, one, pair) }];
  if (comparesNothing(facts))
    parts.push(
      { text: `half of the interval is ${score(facts, WIDTH_95 * now.sigma, 2)}` },
      { text: `asked for ${score(facts, facts.objective.half_width, 2)}` },
    );
  else if (!pair) parts.push({ key: "z", text: `z ${number(now.z)} ${againstBoundary(now)} at look ${now.look}` });
  else {
    const z = pair.z !== null && pair.better !== one.first ? -pair.z : pair.z;
    const open = SETTLED.has(pair.verdict) ? "" : ` ${againstBoundary(pair)}`;
    parts.push({ key: "z", text: `z ${number(z)}${open} now` });
  }
  if (now.information !== null)
    parts.push({
      key: "information",
      text: `${percent(Math.min(1, now.information))} of the information at the horizon`,
    });
  if (pair?.rho !== null && pair?.rho !== undefined) parts.push({ key: "z", text: `ρ ${chance(pair.rho)}` });
  if (pair?.power !== null && pair?.power !== undefined && !SETTLED.has(now.verdict))
    parts.push({ key: "power", text: `chance to be settled ${percent(pair.power)}` });
  return parts;
}

/**
 * The verdict, with the look at which it was called and what was known then.
 * @param {Facts} facts @param {Series} one @param {Pair | undefined} pair
 */
function calledText(facts, one, pair) {
  const now = last(one.points);
  const before = one.points.findLastIndex((point) => point.verdict !== now.verdict);
  const called = SETTLED.has(now.verdict) ? one.points[before + 1] : undefined;
  const changed = pair?.by_grades && pair.verdict !== now.verdict;
  const word = changed ? `${pair.word}, by the grades ${verdictWord(now.verdict)}` : wordOf(now, pair);
  if (!called) return word;
  const then = comparesNothing(facts) ? "" : `, at z ${number(called.z)} ${againstBoundary(called)}`;
  return `${word} at look ${called.look}${then}`;
}

/** A verdict at a look: what was called then stands. @param {Point} point @param {Pair | undefined} pair */
function wordOf(point, pair) {
  return pair?.verdict === point.verdict ? pair.word : verdictWord(point.verdict);
}

/** @param {{boundary: number | null}} given */
function againstBoundary({ boundary }) {
  return boundary === null ? "(too early for a call)" : `against ${number(boundary)}`;
}

/** @param {Facts} facts @param {Series} one @param {Curves} curves @param {Pair | undefined} pair */
function dataTable(facts, one, curves, pair) {
  const shown = (/** @type {number | null} */ value) =>
    comparesNothing(facts) ? score(facts, value, 2) : number(value);
  const head = [
    "Look",
    comparesNothing(facts) ? "Half width" : "z",
    comparesNothing(facts) ? "Asked for" : "Boundary",
    "Information",
    "Verdict",
  ];
  const row = (/** @type {Point} */ point) => [
    point.look,
    shown(curves.value(point)),
    shown(curves.upper(point)),
    percent(point.information, 1),
    wordOf(point, pair),
  ];
  return data(titleOf(facts, one), () => ({ head, rows: one.points.map(row), texts: 5 }), `data-${one.key}`);
}
