// The ranking: one sentence, and a table with a forest plot in it, tiers as row groups.

import { intervalPlot, linear, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { clipped, interval, narrowInterval, score } from "./facts.js";
import { headline, nextSteps } from "./overview.js";
import { note } from "./parts.js";
import { term } from "./terms.js";
import { amount, count, name, percent, plain } from "./text.js";
/** @import { Facts, Scale } from "./facts.js" */
/** @import { Section } from "./parts.js" */

/** @typedef {{model: ModelRow, verdict: string}} Row */
/** @typedef {{number: number | null, rows: Row[]}} Tier */
/** @typedef {{from: number, to: number, x: (value: number) => string, ticks: number[]}} PlotScale */

const PAD = 3;
/** Longer names may take several lines. */
const LONG_NAME = 28;
const MAX_TICKS = 5;

/** @type {Section} */
export const ranking = {
  id: "ranking",
  title: "Ranking",
  shown: true,
  render(state) {
    const { view, facts } = state;
    const lead = [h("p", { class: "lead" }, headline(view)), nextSteps(view)];
    if (!view.results) return lead;
    const { models } = view.results;
    const scale = plotScale(
      models.map((row) => ({ ...row, value: row.score })),
      facts,
    );
    const hasCosts = models.some((row) => costPerAnswer(row).length);
    const column = (/** @type {string} */ kind) => ({ scope: "col", class: kind });
    const heads = [
      view.has_tiers ? h("th", column("tier"), term("tier")) : null,
      h("th", column("model"), "Model"),
      h("th", column("digits"), term("score", "Score"), h("small", null, "95% interval")),
      hasCosts ? h("th", column("digits each"), term("per_answer", "Per answer")) : null,
      h("th", column("plot"), axis(scale, facts)),
      h("th", column("says"), facts.gate ? term("gate", "Verdict") : "Verdict"),
    ];
    const rows = models.map((model, index) => ({ model, verdict: view.verdicts[index] ?? "" }));
    const tiers = tiersOf(rows, view).map(({ number, rows }) =>
      h("tbody", { "data-key": `tier-${number}-${rows[0].model.rank}` }, [
        rows.map((row, index) => {
          const attributes = { scope: "rowgroup", rowspan: rows.length, class: "tier" };
          const tier = index || !view.has_tiers ? null : h("th", attributes, h("span", null, number ?? "–"));
          return modelRow(tier, row, scale, facts, hasCosts);
        }),
      ]),
    );
    return [
      ...lead,
      h("table", { class: "ranking" }, [
        h("caption", { class: "unseen" }, "The models from best to worst"),
        h("thead", null, h("tr", null, heads)),
        tiers,
      ]),
      note(plain(view.words.promise, 2000)),
    ];
  },
};

/** A gate and a pick put no model in a tier. @param {Row[]} rows @param {PageView} view */
function tiersOf(rows, { has_tiers: hasTiers }) {
  /** @type {Tier[]} */
  const tiers = [];
  for (const row of rows) {
    const number = row.model.score === null || !hasTiers ? null : row.model.tier;
    const tier = tiers.at(-1);
    if (tier?.number === number) tier.rows.push(row);
    else tiers.push({ number, rows: [row] });
  }
  return tiers;
}

/** Price, tokens and seconds of an answer, as far as they are known. @param {ModelRow} row @returns {string[]} */
function costPerAnswer({ usd_per_answer, tokens_per_answer, seconds_per_answer }) {
  return [
    usd_per_answer === null ? "" : `$${amount(usd_per_answer, 2)}`,
    tokens_per_answer === null ? "" : `${count(tokens_per_answer)} tokens`,
    seconds_per_answer === null ? "" : `${amount(seconds_per_answer, 0)} s`,
  ].filter(Boolean);
}

/**
 * @param {HTMLElement | null} tier
 * @param {Row} row @param {PlotScale} scale @param {Facts} facts @param {boolean} hasCosts
 */
function modelRow(tier, { model, verdict }, scale, facts, hasCosts) {
  const costs = costPerAnswer(model).map((text, line) => h(line ? "small" : "span", null, text));
  const bounds = model.lo === null ? null : h("small", null, narrowInterval(facts, model.lo, model.hi));
  return h("tr", { "data-key": model.name, class: model.set_aside === null ? null : "aside" }, [
    tier,
    h("th", { scope: "row", class: model.name.length > LONG_NAME ? "model long" : "model" }, [
      name(model.name, 120),
      model.set_aside === null
        ? null
        : h("small", { class: "aside" }, term("set_aside", "set aside"), ": ", plain(model.set_aside, 120)),
      model.recorded === null ? null : h("small", null, " recorded: ", plain(model.recorded, 60)),
    ]),
    h("td", { class: "digits" }, h("b", null, score(facts, model.score)), bounds),
    hasCosts ? h("td", { class: "digits each" }, costs) : null,
    h("td", { class: "plot" }, forest(model, scale, facts)),
    h("td", { class: "says" }, plain(verdict, 500)),
  ]);
}

/**
 * The place of scores in the plot, in percent of its width, so that it takes any width undistorted.
 * @param {{value: number | null, lo: number | null, hi: number | null}[]} rows @param {Scale} facts
 * @returns {PlotScale}
 */
export function plotScale(rows, facts) {
  const ends = rows.flatMap(({ value, lo, hi }) =>
    value === null ? [] : [clipped(facts, lo ?? value), clipped(facts, hi ?? value)],
  );
  if (!ends.length) ends.push(facts.low, facts.high);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const room = Math.max(0.04 * (most - least), 0.005 * (facts.high - facts.low));
  const [from, to] = [least - room, most + room];
  const place = linear(from, to, PAD, 100 - PAD);
  const marks = ticks(Math.max(from, facts.low), Math.min(to, facts.high), MAX_TICKS);
  return { from, to, x: (value) => `${place(value).toFixed(2)}%`, ticks: marks };
}

/** @param {PlotScale} scale @param {Scale} facts */
export function axis({ from, to, x, ticks }, facts) {
  const label = (/** @type {number} */ value) =>
    facts.inPercent ? percent(value, 100 * (to - from) < 4 ? 1 : 0) : String(value);
  const name = `Scores from ${score(facts, from)} to ${score(facts, to)}`;
  const texts = ticks.map((value) =>
    s("text", { class: "tick", x: x(value), y: 13, "text-anchor": "middle" }, label(value)),
  );
  return s("svg", { height: 13, role: "img", "aria-label": name }, texts);
}

/** @param {ModelRow} model @param {PlotScale} scale @param {Facts} facts */
function forest({ score: value, lo, hi }, scale, facts) {
  if (value === null) return intervalPlot(scale.x, null, scale.ticks, "no score");
  const [from, to] = [lo === null ? null : clipped(facts, lo), hi === null ? null : clipped(facts, hi)];
  const label = `${score(facts, value)}, ${interval(facts, lo, hi)}`;
  return intervalPlot(scale.x, { value, lo: from, hi: to }, scale.ticks, label);
}
