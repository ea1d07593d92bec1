// One comparison over the looks: z against its boundary, small among others or large with its data.

import { badge, band, fitted, line, planeOf, plot, sign } from "./chart.js";
import { h, s } from "./dom.js";
import { SETTLED, WIDTH_95, againstText, comparesNothing, last, pairText, score, verdictWord, zText } from "./facts.js";
import { data } from "./parts.js";
import { term } from "./terms.js";
import { chance, number, percent, plain } from "./text.js";
/** @import { Plane } from "./chart.js" */
/** @import { Facts, Pair, Point, Series } from "./facts.js" */
/** @import { State } from "./parts.js" */

/** @typedef {(point: Point) => number | null} Curve */
/** @typedef {{value: Curve, upper: Curve, lower: Curve | null, tie: Curve}} Curves */
/** @typedef {{points: Point[], curves: Curves, plane: Plane}} Drawing */

const SMALL = { width: 216, height: 104, top: 8, right: 200, bottom: 96, left: 10 };

/** The curves of z, or for objective precision of the half width. @param {Facts} facts @returns {Curves} */
function curvesOf(facts) {
  const goal = facts.objective.half_width ?? 0;
  if (comparesNothing(facts))
    return { value: (point) => WIDTH_95 * point.sigma, upper: () => goal, lower: null, tie: () => null };
  return {
    value: (point) => point.z,
    upper: (point) => point.boundary,
    lower: (point) => (point.boundary === null ? null : -point.boundary),
    tie: (point) => point.tie,
  };
}

/**
 * The comparison as a button among others, on a scale that all share.
 * @param {Facts} facts @param {Series} series @param {Pair} pair @param {boolean} chosen
 */
export function small(facts, { key, points }, pair, chosen) {
  /** @type {[number, number]} */
  const extent = comparesNothing(facts) ? [0, 3 * (facts.objective.half_width ?? 0)] : [-4.6, 4.6];
  const plane = planeOf([points[0].look, last(points).look], extent, SMALL);
  const drawing = { points, curves: curvesOf(facts), plane };
  const against = pair.second === null ? againstText(facts) : `${facts.over} ${plain(pair.second, 40)}`;
  const pressed = { "data-key": key, "data-pair": key, "aria-pressed": String(chosen) };
  return h("button", { type: "button", class: "panel", ...pressed }, [
    h("span", { class: "title" }, plain(pair.first, 40)),
    h("span", { class: "title second" }, against),
    s("svg", { viewBox: `0 0 ${SMALL.width} ${SMALL.height}`, "aria-hidden": "true" }, [
      backdrop(drawing),
      path(drawing),
      mark(drawing, last(points), (x, y) => sign(pair.verdict, x, y, 5)),
    ]),
    h("span", { class: "below" }, badge(pair.verdict, pair.word), h("span", { class: "digits" }, zText(pair))),
  ]);
}

/** The path of z, with a gap over the looks at which the two were not compared. @param {Drawing} drawing */
function path({ points, curves, plane }) {
  const corners = points.flatMap((point, index) => {
    /** @type {[number, number | null]} */
    const corner = [point.look, curves.value(point)];
    return isAfterGap(points, index) ? [/** @type {[number, null]} */ ([point.look, null]), corner] : [corner];
  });
  return s("path", { class: "curve", d: line(corners, plane) });
}

/** A mark at a point. @param {Drawing} drawing @param {Point} point @param {(x: number, y: number) => Element} draw */
function mark({ curves, plane: { x, y } }, point, draw) {
  const value = curves.value(point);
  return value === null || !Number.isFinite(value) ? null : draw(x(point.look), y(value));
}

/** @param {Point[]} points @param {number} index */
function isAfterGap(points, index) {
  return index > 0 && points[index - 1].look < points[index].look - 1;
}

/** There are looks at which the two were not compared. @param {Point[]} points */
export function hasGap(points) {
  return points.some((_, index) => isAfterGap(points, index));
}

/** The regions in which a comparison is called, and the boundary itself. @param {Drawing} drawing */
function backdrop({ points, curves: { upper, lower, tie }, plane }) {
  const bounded = points.filter((point) => upper(point) !== null);
  /** @param {string} className @param {Point[]} members @param {Curve} low @param {Curve} high */
  const area = (className, members, low, high) => {
    /** @type {(point: Point) => [number, number, number]} */
    const span = (point) => [point.look, low(point) ?? 0, high(point) ?? 0];
    return s("path", { class: className, d: band(members.map(span), plane) });
  };
  const edge = (/** @type {Curve} */ value) => {
    const corners = bounded.map((point) => /** @type {[number, number | null]} */ ([point.look, value(point)]));
    return s("path", { class: "boundary", d: line(corners, plane) });
  };
  const [bottom, top] = [() => plane.low, () => plane.high];
  if (!lower) return [area("called", bounded, bottom, upper), edge(upper)];
  const tied = bounded.filter((point) => (tie(point) ?? 0) > 0);
  const middle = { y1: plane.y(0), y2: plane.y(0) };
  return [
    area("called", bounded, upper, top),
    area("called", bounded, bottom, lower),
    area("wedge", tied, (point) => -(tie(point) ?? 0), tie),
    s("line", { class: "zero", x1: plane.x(points[0].look), x2: plane.x(last(points).look), ...middle }),
    edge(upper),
    edge(lower),
  ];
}

/** The comparison over the whole width. @param {State} state @param {Series} series @param {Pair} pair */
export function large(state, series, pair) {
  const { facts } = state;
  const { points } = series;
  const curves = curvesOf(facts);
  const width = Math.max(state.width, 280);
  const title = pairText(facts, { first: series.first, second: series.second });
  const summary = summaryOf(facts, series, pair);
  const axis = comparesNothing(facts)
    ? "half of the 95% interval"
    : facts.gate
      ? `${facts.gate.z}, positive speaks for a pass`
      : `z, positive where ${plain(series.first, 30)} is ahead`;
  const level = (/** @type {number} */ value) =>
    comparesNothing(facts) ? score(facts, value) : number(value, Number.isInteger(value) ? 0 : 1);
  const chart = plot(
    {
      label: `${title}: ${summary.map(({ text }) => text).join("; ")}`,
      caption: summary.map(({ key, text }, index) => [index ? "; " : "", key ? term(key, text) : text]),
      width,
      height: width < 560 ? 280 : 340,
      across: [points[0].look, last(points).look],
      unit: "look",
      up: extentOf(points, curves),
      format: level,
    },
    (plane) => {
      const drawing = { points, curves, plane };
      return [
        backdrop(drawing),
        regionLabels(facts, series, drawing),
        path(drawing),
        changes(points).map((point) => mark(drawing, point, (x, y) => sign(point.verdict, x, y, 6.5))),
      ];
    },
  );
  return h("div", { class: "large" }, [
    h("h3", null, title, " ", badge(pair.verdict, pair.word)),
    h("p", { class: "axis" }, axis),
    chart,
    numbers(facts, series, curves, pair, title),
  ]);
}

/** @param {Point[]} points @param {Curves} curves @returns {[number, number]} */
function extentOf(points, { value, upper, lower }) {
  const values = points
    .flatMap((point) => [value(point), upper(point), lower ? lower(point) : 0])
    .filter((level) => level !== null)
    .filter(Number.isFinite);
  const [from, to] = [Math.min(...values, 0), Math.max(...values, 0)];
  const room = 0.08 * (to - from || 1);
  return [lower ? from - room : 0, to + room];
}

/** Looks at which the verdict became another one. @param {Point[]} points */
function changes(points) {
  return points.filter(({ verdict }, index) => {
    const before = points[index - 1]?.verdict ?? "open";
    return index === points.length - 1 || (verdict !== before && verdict !== "open");
  });
}

/** The meaning of each region, at its far edge. @param {Facts} facts @param {Series} series @param {Drawing} drawing */
function regionLabels(facts, { first, second }, { points, curves, plane: { y, low, high, right } }) {
  if (!curves.lower) return null;
  const label = (/** @type {number} */ place, /** @type {string} */ text, kind = "region") =>
    s("text", { class: kind, x: right - 6, y: place, "text-anchor": "end" }, text);
  const bounded = points.findLast((point) => point.boundary !== null);
  if (!bounded) return label(y(0) - 8, "too early to decide");
  const wedge = Math.max(0, curves.tie(bounded) ?? 0);
  const value = againstText(facts).replace("against ", "");
  const better = (/** @type {string} */ name) => `${fitted(name, right / 3)} is better`;
  const [above, below] = facts.gate
    ? ["passes", "fails"]
    : second === null
      ? [`above ${value}`, `below ${value}`]
      : [better(first), better(second)];
  return [
    label(y(high) + 16, above),
    label(y(low) - 8, below),
    y(-wedge) - y(wedge) > 30 ? label(y(wedge) + 15, "tied", "region tie") : null,
  ];
}

/**
 * The state of a comparison, as parts of a sentence; `key` is the word of the glossary that explains a part.
 * @param {Facts} facts @param {Series} series @param {Pair} pair @returns {{key?: TermKey, text: string}[]}
 */
function summaryOf(facts, { points, first }, pair) {
  const latest = last(points);
  /** @type {{key?: TermKey, text: string}[]} */
  const parts = [{ key: /** @type {TermKey} */ (latest.verdict), text: callText(facts, points, pair) }];
  if (comparesNothing(facts))
    parts.push(
      { text: `half of the interval is ${score(facts, WIDTH_95 * latest.sigma, 2)}` },
      { text: `asked for ${score(facts, facts.objective.half_width, 2)}` },
    );
  else {
    const z = pair.z !== null && pair.first !== first ? -pair.z : pair.z;
    parts.push({ key: "z", text: `z ${number(z)}${SETTLED.has(pair.verdict) ? "" : ` ${againstBoundary(pair)}`} now` });
  }
  if (latest.information !== null) {
    const share = percent(Math.min(1, latest.information));
    parts.push({ key: "information", text: `${share} of the information that trials.max allows` });
  }
  if (pair.rho !== null) parts.push({ key: "z", text: `ρ ${chance(pair.rho)}` });
  if (pair.power !== null && !SETTLED.has(latest.verdict))
    parts.push({ key: "power", text: `chance to be settled ${percent(pair.power)}` });
  return parts;
}

/**
 * The verdict, with the look of its call and z then.
 * @param {Facts} facts @param {Point[]} points @param {Pair} pair
 */
function callText(facts, points, pair) {
  const { verdict } = last(points);
  const before = points.findLastIndex((point) => point.verdict !== verdict);
  const isChanged = pair.by_grades && pair.verdict !== verdict;
  const word = isChanged ? `${pair.word}, by the grades ${verdictWord(verdict)}` : wordOf(verdict, pair);
  if (!SETTLED.has(verdict)) return word;
  const call = points[before + 1];
  const then = comparesNothing(facts) ? "" : `, at z ${number(call.z)} ${againstBoundary(call)}`;
  return `${word} at look ${call.look}${then}`;
}

/** @param {string} verdict @param {Pair} pair */
function wordOf(verdict, pair) {
  return pair.verdict === verdict ? pair.word : verdictWord(verdict);
}

/** @param {{boundary: number | null}} point */
function againstBoundary({ boundary }) {
  return boundary === null ? "(too early to decide)" : `against ${number(boundary)}`;
}

/** @param {Facts} facts @param {Series} series @param {Curves} curves @param {Pair} pair @param {string} title */
function numbers(facts, { key, points }, curves, pair, title) {
  const isWidth = comparesNothing(facts);
  const level = (/** @type {number | null} */ value) => (isWidth ? score(facts, value, 2) : number(value));
  /** @type {import("./parts.js").Column<Point>[]} */
  const columns = [
    ["Look", (point) => point.look],
    [isWidth ? "Half width" : "z", (point) => level(curves.value(point))],
    [isWidth ? "Asked for" : "Boundary", (point) => level(curves.upper(point))],
    ["Information", (point) => percent(point.information, 1)],
    ["Verdict", (point) => wordOf(point.verdict, pair)],
  ];
  return data(title, () => ({ columns, rows: points, texts: columns.length }), `data-${key}`);
}
