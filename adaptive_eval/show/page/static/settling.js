// How the ranking settled: after so many trials, its agreement with the latest one and what was decided.

import { bottomTicks, figure, horizontalLines, line, linear, roomFor, spread, ticks } from "./chart.js";
import { s } from "./dom.js";
import { SETTLED, last, unit } from "./facts.js";
import { data, nothing } from "./parts.js";
import { term } from "./terms.js";
import { count, number, percent } from "./text.js";
/** @import { Section, State } from "./parts.js" */
/** @import { LookView } from "./sent.js" */

/** @typedef {{look: number, trials: number, tau: number, decided: number}} Point */

const STEPS = [0, 0.25, 0.5, 0.75, 1];
const DASHES = ["", "7 4"];

/** @type {Section} */
export const settling = {
  id: "settling",
  title: "How the ranking settled",
  render(state) {
    const points = pointsOf(state.view.looks);
    if (points.length < 2) return nothing("There is nothing to show before the second look.");
    return [chart(state, points), numbers(points)];
  },
};

/** @param {LookView[]} looks @returns {Point[]} */
function pointsOf(looks) {
  const latest = looks.at(-1)?.order ?? [];
  return looks.map((look) => ({
    look: look.look,
    trials: look.trials.reduce((sum, one) => sum + one, 0),
    tau: agreement(look.order, latest),
    decided: look.pairs.length ? look.pairs.filter((pair) => SETTLED.has(pair.verdict)).length / look.pairs.length : 1,
  }));
}

/**
 * Kendall's tau of two orders: the share of pairs in the same order, less the share of the others.
 * @param {string[]} order @param {string[]} latest
 */
function agreement(order, latest) {
  const place = new Map(order.map((name, at) => [name, at]));
  const places = latest.flatMap((name) => place.get(name) ?? []);
  if (places.length < 2) return 1;
  let sum = 0;
  for (const [at, first] of places.entries()) for (const second of places.slice(at + 1)) sum += first < second ? 1 : -1;
  return sum / ((places.length * (places.length - 1)) / 2);
}

/** @param {State} state @param {Point[]} points */
function chart({ width: wide, facts }, points) {
  const now = last(points);
  /** @type {{name: string, of: (point: Point) => number}[]} */
  const lines = [
    { name: "agreement", of: (one) => one.tau }, // in the end 1, since it is that with the end
    { name: `decided ${percent(now.decided)}`, of: (one) => one.decided },
  ];
  const width = Math.max(wide, 280);
  const height = 230;
  const texts = lines.map((one) => one.name);
  const frame = { left: 46, right: 16 + roomFor(texts, width / 2, 12, 600), top: 12, bottom: 40 };
  const lowest = Math.min(0, ...points.map((one) => one.tau));
  const x = linear(points[0].trials, now.trials, frame.left, width - frame.right);
  const y = linear(lowest, 1, height - frame.bottom, frame.top);
  const labels = spread(lines.map((one, at) => ({ text: texts[at], y: y(one.of(now)) })));
  const half = points.find((one) => one.decided >= 0.5);
  const when = half ? ` Half of them were after ${count(half.trials)} trials.` : "";
  return figure(
    {
      label: `Agreement with the latest order, and the share decided, over ${count(now.trials)} trials: ${texts[1]}`,
      caption: [
        term("agreement", "Agreement"),
        ": Kendall’s τ of the order at a look with that at the latest one. ",
        `Decided: the share of ${unit(facts)}s that were resolved or tied.${when}`,
      ],
      width,
      height,
      className: "wide shares",
    },
    horizontalLines(lowest < 0 ? [-0.5, ...STEPS] : STEPS, y, frame.left, width - frame.right, number),
    bottomTicks(
      ticks(points[0].trials, now.trials, width / 130),
      x,
      height - frame.bottom,
      count,
      "trials of all models",
      width - frame.right,
    ),
    lines.map((one, at) =>
      s("path", {
        class: `curve c${at}`,
        "stroke-dasharray": DASHES[at],
        d: line(
          points.map((point) => [point.trials, one.of(point)]),
          x,
          y,
        ),
      }),
    ),
    labels.map((label, at) =>
      s("text", { class: `label c${at}`, x: width - frame.right + 8, y: label.y, dy: "0.32em" }, label.text),
    ),
  );
}

/** @param {Point[]} points */
function numbers(points) {
  const step = Math.ceil(points.length / 40);
  const shown = points.filter((_, at) => at % step === 0 || at === points.length - 1);
  return data("Agreement and decisions", () => ({
    head: ["Look", "Trials", "Agreement τ", "Decided"],
    rows: shown.map((one) => [one.look, count(one.trials), number(one.tau, 3), percent(one.decided, 1)]),
  }));
}
