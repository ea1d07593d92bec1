// The stopping rule at work: z of each comparison against its boundary, look by look.

import { badge, band, bottomTicks, figure, fitted, horizontalLines, line, linear, sign, ticks } from "./chart.js";
import { h, on, s } from "./dom.js";
import { WIDTH_95, againstText, pairKey, pairText, score, unit, verdictWord, zText } from "./facts.js";
import { chance, count, number, percent, plain, plural } from "./text.js";

const SHOWN = 24;
const SMALL = { width: 216, height: 104, top: 8, right: 10, bottom: 8, left: 10 };

export const stopping = {
  id: "stopping",
  title: "The stopping rule at work",
  short: "Stopping rule",
  render(state) {
    const { view, facts, ui } = state;
    const keyOf = (pair) => pairKey(pair.better, pair.worse);
    // after a resume with other settings the results may be ahead of the looks, which are taken anew
    const pairs = (view.results?.pairs ?? []).filter((pair) => facts.series.has(keyOf(pair)));
    if (!pairs.length) return [h("p", { class: "quiet" }, view.results ? "There is nothing to compare." : "There is nothing to show before the first look.")];
    const keys = pairs.map(keyOf);
    const chosen = facts.series.has(ui.pair) ? ui.pair : keys[mostTelling(pairs, keys, facts.series)];
    const shown = ui.allPairs ? pairs.length : Math.min(SHOWN, pairs.length);
    return [
      explanation(facts, facts.series.get(chosen).points),
      large(state, facts.series.get(chosen), pairs[keys.indexOf(chosen)]),
      picker(state, chosen, keys),
      h("div", { class: "panels" }, pairs.slice(0, shown).map((pair, at) => small(facts, facts.series.get(keys[at]), pair, keys[at] === chosen))),
      shown < pairs.length ? h("button", { type: "button", class: "more", "data-all-pairs": "" }, `Show all ${count(pairs.length)} comparisons`) : null,
      undecided(view, facts),
    ];
  },
  wire(root, state) {
    on(root, "click", "[data-pair]", (button) => choose(state, button.getAttribute("data-pair")));
    on(root, "change", "[data-pairs]", (select) => choose(state, select.value));
    on(root, "click", "[data-all-pairs]", () => {
      state.ui.allPairs = true;
      state.refresh("stopping");
    });
  },
};

function choose(state, key) {
  state.ui.pair = key;
  state.refresh("stopping");
}

/** The first comparison that is open, else the one that was decided last. */
function mostTelling(pairs, keys, series) {
  const open = pairs.findIndex((pair) => pair.verdict === "open");
  if (open >= 0) return open;
  const decided = keys.map((key) => series.get(key).points.find((point) => point.verdict !== "open")?.look ?? 0);
  return decided.indexOf(Math.max(...decided));
}

function explanation(facts, points) {
  if (isPrecision(facts)) return h("p", null, "A score is known once half of its 95% interval is within the width that was asked for.");
  const gap = points.some((point, at) => at > 0 && points[at - 1].look < point.look - 1) ? " A gap: the two were not compared at those looks." : "";
  const tie = facts.decisions.stopping?.delta > 0 ? " Within the inner wedge, which opens as the difference becomes known to within delta, the pair is called tied." : "";
  return h("p", null, `A comparison is called at the first look at which z lies beyond the boundary, above it or below.${tie} Calls and ties stand.${gap}`);
}

function isPrecision(facts) {
  return facts.decisions.objective?.kind === "precision";
}

function picker(state, chosen, current) {
  const { series } = state.facts;
  const others = [...series.keys()].filter((key) => !current.includes(key));
  const option = (key) => h("option", { value: key, selected: key === chosen }, titleOf(state.facts, series.get(key)));
  return h(
    "label",
    { class: "picker" },
    "Comparison ",
    h("select", { "data-pairs": "", "data-key": `pairs-${chosen}` },
      h("optgroup", { label: "Compared now" }, current.map(option)),
      others.length ? h("optgroup", { label: "Compared at an earlier look" }, others.map(option)) : null),
  );
}

function titleOf(facts, line_, longest = 40) {
  return pairText(facts, { better: line_.first, worse: line_.second }, longest);
}

/** The curves of a comparison: of z, or for the objective precision of half the interval's width. */
function curvesOf(facts, one) {
  if (isPrecision(facts)) {
    const goal = facts.decisions.objective.half_width;
    return { value: (point) => WIDTH_95 * point.sigma, upper: () => goal, lower: null, tie: () => null, label: (value) => score(facts, value), title: "half of the 95% interval" };
  }
  return { value: (point) => point.z, upper: (point) => point.boundary, lower: (point) => -point.boundary, tie: (point) => point.tie, label: (value) => number(value, Number.isInteger(value) ? 0 : 1), title: `z, positive where ${plain(one.first, 30)} is ahead` };
}

function small(facts, one, pair, chosen) {
  const { width, height, top, right, bottom, left } = SMALL;
  const curves = curvesOf(facts, one);
  const points = one.points;
  const x = linear(points[0].look, Math.max(points.at(-1).look, points[0].look + 1), left, width - right - 6);
  const extent = isPrecision(facts) ? [0, 3 * curves.upper(points[0])] : [-4.6, 4.6];
  const clip = (value) => (value === null || !Number.isFinite(value) ? null : Math.min(Math.max(value, extent[0]), extent[1]));
  const y = linear(extent[0], extent[1], height - bottom, top);
  const last = points.at(-1);
  return h(
    "button",
    { type: "button", class: "panel", "data-key": one.key, "data-pair": one.key, "aria-pressed": String(chosen) },
    h("span", { class: "title" }, plain(pair.better, 40)),
    h("span", { class: "title second" }, pair.worse === null ? againstText(facts) : `over ${plain(pair.worse, 40)}`),
    s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      backdrop(points, curves, x, y, clip, extent),
      s("path", { class: "curve", d: line(broken(points, (point) => clip(curves.value(point))), x, y) }),
      clip(curves.value(last)) === null ? null : sign(pair.verdict, x(last.look), y(clip(curves.value(last))), 5)),
    h("span", { class: "below" }, badge(pair.verdict), h("span", { class: "digits" }, zText(pair))),
  );
}

/** [look, value] of each point, with a gap over the looks at which the two were not compared. */
function broken(points, value) {
  return points.flatMap((point, at) => (at > 0 && points[at - 1].look < point.look - 1 ? [[point.look, null]] : []).concat([[point.look, value(point)]]));
}

function alone(points, at) {
  return points[at - 1]?.look !== points[at].look - 1 && points[at + 1]?.look !== points[at].look + 1;
}

/** The regions in which a comparison is called, and the boundary itself. */
function backdrop(points, curves, x, y, clip, extent) {
  const bounded = points.filter((point) => curves.upper(point) !== null);
  const tied = bounded.filter((point) => (curves.tie(point) ?? 0) > 0);
  const upper = (point) => y(clip(curves.upper(point)));
  const lower = (point) => y(clip(curves.lower(point)));
  const look = (point) => x(point.look);
  return [
    curves.lower ? s("path", { class: "called", d: band(bounded, look, upper, () => y(extent[1])) }) : s("path", { class: "called", d: band(bounded, look, () => y(extent[0]), upper) }),
    curves.lower ? s("path", { class: "called", d: band(bounded, look, () => y(extent[0]), lower) }) : null,
    s("path", { class: "wedge", d: band(tied, look, (point) => y(-curves.tie(point)), (point) => y(curves.tie(point))) }),
    curves.lower ? s("line", { class: "zero", x1: x(points[0].look), x2: x(points.at(-1).look), y1: y(0), y2: y(0) }) : null,
    s("path", { class: "boundary", d: line(bounded.map((point) => [point.look, clip(curves.upper(point))]), x, y) }),
    curves.lower ? s("path", { class: "boundary", d: line(bounded.map((point) => [point.look, clip(curves.lower(point))]), x, y) }) : null,
  ];
}

function large(state, one, pair) {
  const { facts } = state;
  const width = Math.max(state.width, 280);
  const height = width < 560 ? 280 : 340;
  const frame = { left: 46, right: 16, top: 14, bottom: 40 };
  const curves = curvesOf(facts, one);
  const points = one.points;
  const extent = extentOf(points, curves);
  const clip = (value) => (value === null || !Number.isFinite(value) ? null : Math.min(Math.max(value, extent[0]), extent[1]));
  const x = linear(points[0].look, Math.max(points.at(-1).look, points[0].look + 1), frame.left, width - frame.right);
  const y = linear(extent[0], extent[1], height - frame.bottom, frame.top);
  const title = titleOf(facts, one);
  const chart = figure(
    { label: `${title}: ${summaryOf(facts, one, pair)}`, caption: summaryOf(facts, one, pair), width, height, className: "wide" },
    backdrop(points, curves, x, y, clip, extent),
    horizontalLines(ticks(extent[0], extent[1], 6), y, frame.left, width - frame.right, curves.label),
    bottomTicks(ticks(points[0].look, points.at(-1).look, width / 90, true), x, height - frame.bottom, String, "look", width - frame.right),
    regionLabels(facts, one, curves, points, x, y, extent, clip, width / 3),
    s("path", { class: "curve", d: line(broken(points, (point) => clip(curves.value(point))), x, y) }),
    points.filter((point, at) => points.length <= 60 || alone(points, at)).map((point) => (clip(curves.value(point)) === null ? null : s("circle", { class: "point", cx: x(point.look), cy: y(clip(curves.value(point))), r: 2.2 }))),
    marks(points).map((point) => sign(point.verdict, x(point.look), y(clip(curves.value(point)) ?? 0), 6.5)),
  );
  return h("div", { class: "large" }, h("h3", null, title, " ", badge(points.at(-1).verdict)), h("p", { class: "axis" }, curves.title), chart, dataTable(facts, one, curves));
}

function extentOf(points, curves) {
  const values = points.flatMap((point) => [curves.value(point), curves.upper(point), curves.lower ? curves.lower(point) : 0]).filter((value) => value !== null && Number.isFinite(value));
  const [from, to] = [Math.min(...values, 0), Math.max(...values, 0)];
  const room = 0.08 * (to - from || 1);
  return [curves.lower ? from - room : 0, to + room];
}

/** Looks at which the verdict became another one. */
function marks(points) {
  return points.filter((point, at) => at === points.length - 1 || (point.verdict !== (points[at - 1]?.verdict ?? "open") && point.verdict !== "open"));
}

/** What it means to lie in each region, written where the curve does not end. */
function regionLabels(facts, one, curves, points, x, y, extent, clip, room) {
  if (!curves.lower) return null;
  const at = x(points.at(-1).look) - 6;
  const bounded = points.filter((point) => point.boundary !== null);
  if (!bounded.length) return s("text", { class: "region", x: at, y: y(0) - 8, "text-anchor": "end" }, "too early for a call");
  const last = bounded.at(-1);
  const wedge = Math.max(0, curves.tie(last) ?? 0);
  const value = one.second === null ? againstText(facts).replace("against ", "") : null;
  const end = y(clip(points.at(-1).z) ?? 0);
  const free = (...places) => places.reduce((best, place) => (Math.abs(place - end) > Math.abs(best - end) ? place : best));
  const upper = free(y(extent[1]) + 16, y(clip(last.boundary)) - 8);
  const lower = free(y(extent[0]) - 8, y(clip(-last.boundary)) + 17);
  return [
    s("text", { class: "region", x: at, y: upper, "text-anchor": "end" }, value === null ? `${fitted(one.first, room)} is better` : `above ${value}`),
    s("text", { class: "region", x: at, y: lower, "text-anchor": "end" }, value === null ? `${fitted(one.second, room)} is better` : `below ${value}`),
    y(-wedge) - y(wedge) > 30 ? s("text", { class: "region tie", x: at, y: free(y(wedge) + 15, y(-wedge) - 7), "text-anchor": "end" }, "tied") : null,
  ];
}

function summaryOf(facts, one, pair) {
  const last = one.points.at(-1);
  const called = one.points.find((point) => point.verdict === last.verdict && (point.verdict === "resolved" || point.verdict === "tied"));
  const parts = [`${verdictWord(last.verdict)}${called ? ` at look ${called.look}` : ""}`];
  if (isPrecision(facts)) parts.push(`half of the interval is ${score(facts, WIDTH_95 * last.sigma, 2)}, asked for ${score(facts, facts.decisions.objective.half_width, 2)}`);
  else parts.push(`z ${number(last.z)}${last.boundary === null ? ", too early for a call" : ` against ${number(last.boundary)}`}`);
  if (last.information !== null) parts.push(`${percent(Math.min(1, last.information))} of the information at the horizon`);
  if (pair?.rho !== null && pair?.rho !== undefined) parts.push(`ρ ${chance(pair.rho)}`);
  if (pair?.power !== null && pair?.power !== undefined && !["resolved", "tied"].includes(last.verdict)) parts.push(`chance to be settled ${percent(pair.power)}`);
  return parts.join("; ");
}

function dataTable(facts, one, curves) {
  const precision = isPrecision(facts);
  return h(
    "details",
    { class: "data", "data-key": `data-${one.key}` },
    h("summary", null, "Data"),
    h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Data of the chart" },
      h("table", null,
        h("caption", null, titleOf(facts, one)),
        h("thead", null, h("tr", null, ["Look", precision ? "Half width" : "z", precision ? "Asked for" : "Boundary", "Information", "Verdict"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, one.points.map((point) =>
          h("tr", null, h("th", { scope: "row" }, point.look), h("td", null, precision ? score(facts, curves.value(point), 2) : number(point.z)),
            h("td", null, precision ? score(facts, curves.upper(point), 2) : number(point.boundary)), h("td", null, percent(point.information, 1)), h("td", null, verdictWord(point.verdict))))))),
  );
}

/** What is not decided, and how many trials it would need. */
function undecided(view, facts) {
  const rows = view.results.pairs.filter((pair) => !["resolved", "tied"].includes(pair.verdict));
  if (!rows.length) return h("p", { class: "note" }, `Every one of the ${plural(view.results.pairs.length, unit(facts))} is decided.`);
  const sorted = [...rows].sort((one, other) => (one.trials_needed ?? Infinity) - (other.trials_needed ?? Infinity));
  return [
    h("h3", null, "Not decided, and what it would take"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Comparisons that are not decided" },
      h("table", null,
        h("caption", { class: "unseen" }, "Comparisons that are not decided"),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Comparison"), h("th", { scope: "col" }, "Verdict"),
          [isPrecision(facts) ? "σ" : "z", "Boundary", "Chance to be settled", "Trials a question it would need", "Certifiable δ"].map((title) => h("th", { scope: "col", class: "digits" }, title)))),
        h("tbody", null, sorted.map((pair) =>
          h("tr", { "data-key": pairKey(pair.better, pair.worse) }, h("th", { scope: "row" }, pairText(facts, pair)), h("td", null, badge(pair.verdict)),
            h("td", { class: "digits" }, isPrecision(facts) ? score(facts, pair.sigma, 2) : number(pair.z)), h("td", { class: "digits" }, number(pair.boundary)), h("td", { class: "digits" }, percent(pair.power)),
            h("td", { class: "digits" }, pair.trials_needed === null ? "–" : count(Math.ceil(pair.trials_needed))), h("td", { class: "digits" }, pair.certifiable_delta === null ? "–" : score(facts, pair.certifiable_delta))))))),
  ];
}
