// One comparison on its way: z against its boundary over the looks, small in a row of many or large with its data.

import { badge, band, bottomTicks, figure, fitted, horizontalLines, line, linear, sign, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { SETTLED, WIDTH_95, againstText, isPrecision, pairText, score, verdictWord, zText } from "./facts.js";
import { data } from "./parts.js";
import { chance, number, percent, plain } from "./text.js";

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

/** The comparison as a button among others, on a scale that all share. */
export function small(facts, one, pair, chosen) {
  const { width, height, top, right, bottom, left } = SMALL;
  const curves = curvesOf(facts, one);
  const points = one.points;
  const x = linear(points[0].look, Math.max(points.at(-1).look, points[0].look + 1), left, width - right - 6);
  const extent = isPrecision(facts) ? [0, 3 * curves.upper(points[0])] : [-4.6, 4.6];
  const clip = (value) =>
    value === null || !Number.isFinite(value) ? null : Math.min(Math.max(value, extent[0]), extent[1]);
  const y = linear(extent[0], extent[1], height - bottom, top);
  const last = points.at(-1);
  return h(
    "button",
    { type: "button", class: "panel", "data-key": one.key, "data-pair": one.key, "aria-pressed": String(chosen) },
    h("span", { class: "title" }, plain(pair.better, 40)),
    h("span", { class: "title second" }, pair.worse === null ? againstText(facts) : `over ${plain(pair.worse, 40)}`),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      backdrop(points, curves, x, y, clip, extent),
      s("path", {
        class: "curve",
        d: line(
          broken(points, (point) => clip(curves.value(point))),
          x,
          y,
        ),
      }),
      clip(curves.value(last)) === null ? null : sign(pair.verdict, x(last.look), y(clip(curves.value(last))), 5),
    ),
    h("span", { class: "below" }, badge(pair.verdict), h("span", { class: "digits" }, zText(pair))),
  );
}

/** [look, value] of each point, with a gap over the looks at which the two were not compared. */
function broken(points, value) {
  return points.flatMap((point, at) => [
    ...(gapBefore(points, at) ? [[point.look, null]] : []),
    [point.look, value(point)],
  ]);
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
function backdrop(points, curves, x, y, clip, extent) {
  const bounded = points.filter((point) => curves.upper(point) !== null);
  const tied = bounded.filter((point) => (curves.tie(point) ?? 0) > 0);
  const upper = (point) => y(clip(curves.upper(point)));
  const lower = (point) => y(clip(curves.lower(point)));
  const look = (point) => x(point.look);
  return [
    curves.lower
      ? s("path", { class: "called", d: band(bounded, look, upper, () => y(extent[1])) })
      : s("path", { class: "called", d: band(bounded, look, () => y(extent[0]), upper) }),
    curves.lower ? s("path", { class: "called", d: band(bounded, look, () => y(extent[0]), lower) }) : null,
    s("path", {
      class: "wedge",
      d: band(
        tied,
        look,
        (point) => y(-curves.tie(point)),
        (point) => y(curves.tie(point)),
      ),
    }),
    curves.lower
      ? s("line", { class: "zero", x1: x(points[0].look), x2: x(points.at(-1).look), y1: y(0), y2: y(0) })
      : null,
    s("path", {
      class: "boundary",
      d: line(
        bounded.map((point) => [point.look, clip(curves.upper(point))]),
        x,
        y,
      ),
    }),
    curves.lower
      ? s("path", {
          class: "boundary",
          d: line(
            bounded.map((point) => [point.look, clip(curves.lower(point))]),
            x,
            y,
          ),
        })
      : null,
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
  const extent = extentOf(points, curves);
  const clip = (value) =>
    value === null || !Number.isFinite(value) ? null : Math.min(Math.max(value, extent[0]), extent[1]);
  const x = linear(points[0].look, Math.max(points.at(-1).look, points[0].look + 1), frame.left, width - frame.right);
  const y = linear(extent[0], extent[1], height - frame.bottom, frame.top);
  const title = titleOf(facts, one);
  const chart = figure(
    {
      label: `${title}: ${summaryOf(facts, one, pair)}`,
      caption: summaryOf(facts, one, pair),
      width,
      height,
      className: "wide",
    },
    backdrop(points, curves, x, y, clip, extent),
    horizontalLines(ticks(extent[0], extent[1], 6), y, frame.left, width - frame.right, curves.label),
    bottomTicks(
      ticks(points[0].look, points.at(-1).look, width / 90, true),
      x,
      height - frame.bottom,
      String,
      "look",
      width - frame.right,
    ),
    regionLabels(facts, one, curves, points, x, y, extent, clip, width / 3),
    s("path", {
      class: "curve",
      d: line(
        broken(points, (point) => clip(curves.value(point))),
        x,
        y,
      ),
    }),
    points
      .filter((point, at) => points.length <= 60 || alone(points, at))
      .map((point) =>
        clip(curves.value(point)) === null
          ? null
          : s("circle", { class: "point", cx: x(point.look), cy: y(clip(curves.value(point))), r: 2.2 }),
      ),
    marks(points).map((point) => sign(point.verdict, x(point.look), y(clip(curves.value(point)) ?? 0), 6.5)),
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
function regionLabels(facts, one, curves, points, x, y, extent, clip, room) {
  if (!curves.lower) return null;
  const at = x(points.at(-1).look) - 6;
  const bounded = points.filter((point) => point.boundary !== null);
  if (!bounded.length)
    return s("text", { class: "region", x: at, y: y(0) - 8, "text-anchor": "end" }, "too early for a call");
  const last = bounded.at(-1);
  const wedge = Math.max(0, curves.tie(last) ?? 0);
  const value = one.second === null ? againstText(facts).replace("against ", "") : null;
  const end = y(clip(points.at(-1).z) ?? 0);
  const free = (...places) =>
    places.reduce((best, place) => (Math.abs(place - end) > Math.abs(best - end) ? place : best));
  const upper = free(y(extent[1]) + 16, y(clip(last.boundary)) - 8);
  const lower = free(y(extent[0]) - 8, y(clip(-last.boundary)) + 17);
  return [
    s(
      "text",
      { class: "region", x: at, y: upper, "text-anchor": "end" },
      value === null ? `${fitted(one.first, room)} is better` : `above ${value}`,
    ),
    s(
      "text",
      { class: "region", x: at, y: lower, "text-anchor": "end" },
      value === null ? `${fitted(one.second, room)} is better` : `below ${value}`,
    ),
    y(-wedge) - y(wedge) > 30
      ? s("text", { class: "region tie", x: at, y: free(y(wedge) + 15, y(-wedge) - 7), "text-anchor": "end" }, "tied")
      : null,
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
