// How the ranking settled: after so many trials, its agreement with the latest one and what was decided.

import { bottomTicks, figure, horizontalLines, line, linear, roomFor, spread, ticks } from "./chart.js";
import { s } from "./dom.js";
import { SETTLED, unit } from "./facts.js";
import { data, nothing } from "./parts.js";
import { count, number, percent } from "./text.js";

const STEPS = [0, 0.25, 0.5, 0.75, 1];
const DASHES = ["", "7 4"];

export const settling = {
  id: "settling",
  title: "How the ranking settled",
  short: "Settling",
  render(state) {
    const points = pointsOf(state.view.looks);
    if (points.length < 2) return nothing("There is nothing to show before the second look.");
    return [chart(state, points), numbers(points)];
  },
};

function pointsOf(looks) {
  const last = looks.at(-1)?.order ?? [];
  return looks.map((look) => ({
    look: look.look,
    trials: look.trials.reduce((sum, one) => sum + one, 0),
    tau: agreement(look.order, last),
    decided: look.pairs.length ? look.pairs.filter((pair) => SETTLED.has(pair.verdict)).length / look.pairs.length : 1,
  }));
}

/** Kendall's tau of two orders: the share of pairs in the same order, less the share of the others. */
function agreement(order, last) {
  const place = new Map(order.map((name, at) => [name, at]));
  const places = last.filter((name) => place.has(name)).map((name) => place.get(name));
  if (places.length < 2) return 1;
  let sum = 0;
  places.forEach((first, at) => places.slice(at + 1).forEach((second) => (sum += first < second ? 1 : -1)));
  return sum / ((places.length * (places.length - 1)) / 2);
}

function chart({ width: wide, facts }, points) {
  const lines = [
    { name: "agreement", of: (one) => one.tau }, // in the end 1, since it is that with the end
    { name: `decided ${percent(points.at(-1).decided)}`, of: (one) => one.decided },
  ];
  const width = Math.max(wide, 280);
  const height = 230;
  const now = points.at(-1);
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
      caption:
        "Agreement: Kendall’s τ of the order at a look with that at the latest one. " +
        `Decided: the share of ${unit(facts)}s that were resolved or tied.${when}`,
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

function numbers(points) {
  const step = Math.ceil(points.length / 40);
  const shown = points.filter((_, at) => at % step === 0 || at === points.length - 1);
  return data("Agreement and decisions", {
    head: ["Look", "Trials", "Agreement τ", "Decided"],
    rows: shown.map((one) => [one.look, count(one.trials), number(one.tau, 3), percent(one.decided, 1)]),
  });
}
