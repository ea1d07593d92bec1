// The ranking: one sentence, and a table with a forest plot in it, tiers as row groups.

import { linear, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { interval, narrowInterval, score } from "./facts.js";
import { headline, nextSteps } from "./overview.js";
import { term } from "./terms.js";
import { amount, count, name, percent, plain } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {{number: number | null, rows: ModelRow[], first: number}} Tier */
/** @typedef {{from: number, to: number, at: (value: number) => string, ticks: number[]}} PlotScale */

const PAD = 3;
/** Longer names may take several lines. */
const LONG = 28;

/** @type {Section} */
export const ranking = {
  id: "ranking",
  title: "Ranking",
  shown: true,
  render(state) {
    const { view, facts } = state;
    const lead = [h("p", { class: "lead" }, headline(state)), nextSteps(view)];
    if (!view.results) return lead;
    const rows = view.results.models;
    const x = plotScale(rows, facts);
    const each = rows.some((row) => perAnswer(row).length);
    const heads = [
      facts.gate ? null : h("th", { scope: "col", class: "tier" }, term("tier")),
      h("th", { scope: "col", class: "model" }, "Model"),
      h("th", { scope: "col", class: "digits" }, term("score", "Score"), h("small", null, "95% interval")),
      each ? h("th", { scope: "col", class: "digits each" }, term("per_answer", "Per answer")) : null,
      h("th", { scope: "col", class: "plot" }, axis(x, facts)),
      h("th", { scope: "col", class: "says" }, "Verdict"),
    ];
    return [
      ...lead,
      h("table", { class: "ranking" }, [
        h("caption", { class: "unseen" }, "The models from best to worst"),
        h("thead", null, h("tr", null, heads)),
        tiersOf(rows, facts).map((tier) => tierBody(tier, x, state, each)),
      ]),
      h("p", { class: "note" }, plain(view.words.promise, 2000)),
    ];
  },
};

/** A gate judges each model by itself, and puts none in a tier. @param {ModelRow[]} rows @param {Facts} facts */
function tiersOf(rows, { gate }) {
  /** @type {Tier[]} */
  const tiers = [];
  for (const [at, row] of rows.entries()) {
    const number = row.score === null || gate ? null : row.tier;
    const tier = tiers.at(-1);
    if (tier?.number === number) tier.rows.push(row);
    else tiers.push({ number, rows: [row], first: at });
  }
  return tiers;
}

/** Price, tokens and seconds of an answer, as far as they are known. @param {ModelRow} row @returns {string[]} */
function perAnswer({ usd_per_answer, tokens_per_answer, seconds_per_answer }) {
  return [
    usd_per_answer === null ? "" : `$${amount(usd_per_answer, 2)}`,
    tokens_per_answer === null ? "" : `${count(tokens_per_answer)} tokens`,
    seconds_per_answer === null ? "" : `${amount(seconds_per_answer, 0)} s`,
  ].filter(Boolean);
}

/** @param {Tier} given @param {PlotScale} x @param {State} state @param {boolean} each */
function tierBody({ number: tier, rows, first }, x, state, each) {
  const { facts, view } = state;
  return h(
    "tbody",
    { "data-key": `tier-${tier}-${rows[0].rank}` },
    rows.map((row, at) =>
      h("tr", { "data-key": row.name, class: row.set_aside === null ? null : "aside" }, [
        at === 0 && !facts.gate
          ? h("th", { scope: "rowgroup", rowspan: rows.length, class: "tier" }, h("span", null, tier ?? "–"))
          : null,
        h("th", { scope: "row", class: row.name.length > LONG ? "model long" : "model" }, [
          name(row.name, 120),
          row.set_aside === null ? null : h("small", { class: "aside" }, "set aside: ", plain(row.set_aside, 120)),
          row.recorded === null ? null : h("small", null, " recorded: ", plain(row.recorded, 60)),
        ]),
        h("td", { class: "digits" }, [
          h("b", null, score(facts, row.score)),
          row.lo === null ? null : h("small", null, narrowInterval(facts, row.lo, row.hi)),
        ]),
        each
          ? h(
              "td",
              { class: "digits each" },
              perAnswer(row).map((text, line) => (line ? h("small", null, text) : h("span", null, text))),
            )
          : null,
        h("td", { class: "plot" }, forest(row, x, facts)),
        h("td", { class: "says" }, plain(view.verdicts[first + at] ?? "", 500)),
      ]),
    ),
  );
}

/** Parts of the plot's axis, at most. */
const TICKS = 5;

/**
 * Where scores lie in the plot, in percent of its width, so that it takes any width undistorted.
 * @param {ModelRow[]} rows @param {Facts} facts @returns {PlotScale}
 */
function plotScale(rows, facts) {
  const ends = rows.flatMap((row) =>
    row.score === null ? [] : [Math.max(row.lo ?? row.score, facts.low), Math.min(row.hi ?? row.score, facts.high)],
  );
  if (!ends.length) ends.push(facts.low, facts.high);
  let [from, to] = [Math.min(...ends), Math.max(...ends)];
  const room = Math.max(0.04 * (to - from), 0.005 * (facts.high - facts.low));
  [from, to] = [from - room, to + room];
  const place = linear(from, to, PAD, 100 - PAD);
  return {
    from,
    to,
    at: (/** @type {number} */ value) => `${place(value).toFixed(2)}%`,
    ticks: ticks(Math.max(from, facts.low), Math.min(to, facts.high), TICKS),
  };
}

/** @param {PlotScale} x @param {Facts} facts */
function axis(x, facts) {
  const label = (/** @type {number} */ value) =>
    facts.inPercent ? percent(value, 100 * (x.to - x.from) < 4 ? 1 : 0) : String(value);
  return s(
    "svg",
    { height: 13, role: "img", "aria-label": `Scores from ${score(facts, x.from)} to ${score(facts, x.to)}` },
    x.ticks.map((value) => s("text", { class: "tick", x: x.at(value), y: 13, "text-anchor": "middle" }, label(value))),
  );
}

/** @param {ModelRow} row @param {PlotScale} x @param {Facts} facts */
function forest(row, x, facts) {
  const grid = x.ticks.map((value) =>
    s("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: 0, y2: "100%" }),
  );
  const label = row.score === null ? "no score" : `${score(facts, row.score)}, ${interval(facts, row.lo, row.hi)}`;
  const known =
    row.score === null
      ? null
      : [
          row.lo === null || row.hi === null
            ? null
            : s("line", {
                class: "whisker",
                x1: x.at(Math.max(row.lo, facts.low)),
                x2: x.at(Math.min(row.hi, facts.high)),
                y1: "50%",
                y2: "50%",
              }),
          s("circle", { class: "dot", cx: x.at(row.score), cy: "50%", r: 4 }),
        ];
  return s("svg", { role: "img", "aria-label": label }, grid, known);
}
