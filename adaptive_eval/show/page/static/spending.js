// The budget over time: what was left of each cap, and of the trials of a fixed design.

import { bottomTicks, figure, horizontalLines, line, linear, roomFor, spread, ticks } from "./chart.js";
import { s } from "./dom.js";
import { last } from "./facts.js";
import { caps } from "./costs.js";
import { data, nothing } from "./parts.js";
import { count, duration, moment, number, percent, usd } from "./text.js";
/** @import { Spending } from "./sent.js" */
/** @import { Section, State } from "./parts.js" */

const DASHES = ["", "7 4", "2 4", "10 3 2 3", "4 2", "1 3"];
/** @type {Record<string, (one: Spending) => number>} */
const USED = {
  trials: (one) => one.trials,
  tokens: (one) => one.tokens,
  usd: (one) => one.usd,
  gpu_hours: (one) => one.gpu_seconds / 3600,
};

/** @type {Section} */
export const spending = {
  id: "budget",
  title: "Budget over time",
  render(state) {
    const { view } = state;
    if (!view.spending.length) return nothing("No trial has been stored yet.");
    return [chart(state), numbers(state)];
  },
};

/**
 * Each cap, and the fixed design, as the share that was left over time.
 * @param {State} state @returns {{label: string, points: [number, number][]}[]}
 */
function linesOf(state) {
  const { view, facts } = state;
  /** @type {[number, number]} */
  const start = [0, 1];
  /** @returns {[number, number][]} */
  const used = (/** @type {string} */ key, /** @type {number} */ cap) => [
    start,
    ...view.spending.map(
      (one) =>
        /** @type {[number, number]} */ ([
          facts.clock.active(one.at),
          1 - (key === "wall_time" ? facts.clock.active(one.at) : USED[key](one)) / cap,
        ]),
    ),
  ];
  // for how long servers had been held at each moment is not sent
  const drawn = caps(state).filter(([key]) => key !== "gpu_hours" || !facts.launches);
  const lines = drawn.map(([key, label, , cap]) => ({ label, points: used(key, cap) }));
  if (facts.fixed.trials) lines.push({ label: "fixed design", points: used("trials", facts.fixed.trials) });
  return lines;
}

/** @param {State} state */
function chart(state) {
  const { facts } = state;
  const lines = linesOf(state);
  const width = Math.max(state.width, 280);
  const height = 250;
  const texts = lines.map((one) => `${one.label} ${percent(Math.max(0, last(one.points)[1]))}`);
  const frame = { left: 46, right: 16 + roomFor(texts, width / 2, 12, 600), top: 12, bottom: 40 };
  const end = Math.max(1, ...lines.flatMap((one) => one.points.map(([at]) => at)));
  const x = linear(0, end, frame.left, width - frame.right);
  const y = linear(0, 1, height - frame.bottom, frame.top);
  const labels = spread(lines.map((one, at) => ({ text: texts[at], y: y(Math.max(0, last(one.points)[1])) })));
  const summary = lines.map((one) => `${one.label}: ${percent(Math.max(0, last(one.points)[1]))} left`).join("; ");
  const design = facts.fixed.trials ? `, and of the ${count(facts.fixed.trials)} trials of a fixed design` : "";
  const resumed = facts.clock.resumes.length ? " Dotted: the run was resumed." : "";
  return figure(
    {
      label: `What was left over time. ${summary}`,
      caption: `Left of each cap${design}.${resumed}`,
      width,
      height,
      className: "wide shares",
    },
    horizontalLines([0, 0.25, 0.5, 0.75, 1], y, frame.left, width - frame.right, (value) => percent(value)),
    bottomTicks(ticks(0, end, width / 130), x, height - frame.bottom, duration, "active time", width - frame.right),
    facts.clock.resumes.map((at) =>
      s("line", { class: "resumed", x1: x(at), x2: x(at), y1: frame.top, y2: height - frame.bottom }),
    ),
    lines.map((one, at) =>
      s("path", {
        class: `curve c${at % 6}`,
        "stroke-dasharray": DASHES[at % DASHES.length],
        d: line(
          one.points.map(([when, left]) => [when, Math.max(0, left)]),
          x,
          y,
        ),
      }),
    ),
    labels.map((label, at) =>
      s("text", { class: `label c${at % 6}`, x: width - frame.right + 8, y: label.y, dy: "0.32em" }, label.text),
    ),
  );
}

/** @param {State} state */
function numbers({ view, facts }) {
  const step = Math.ceil(view.spending.length / 50);
  const shown = view.spending.filter((_, at) => at % step === 0 || at === view.spending.length - 1);
  return data("Used since the start", () => ({
    head: ["Time", "Active", "Trials", "Tokens", "USD", "GPU hours"],
    rows: shown.map((one) => [
      moment(one.at),
      duration(facts.clock.active(one.at)),
      count(one.trials),
      count(one.tokens),
      usd(one.usd),
      number(one.gpu_seconds / 3600),
    ]),
  }));
}
