// Details of the scores: columns that few readers need, and scores on parts of the questions.

import { h } from "./dom.js";
import { resultsOf, score } from "./facts.js";
import { column, note, table } from "./parts.js";
import { term } from "./terms.js";
import { count, duration, name, number, percent, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { Column, Section } from "./parts.js" */

/** @typedef {{model: string, column: string, value: number | null, lo: number | null, hi: number | null, gate?: string | null}} Cell */

/** @type {Section} */
export const details = {
  id: "details",
  title: "Details of the scores",
  isThere: ({ view }) => view.results !== null,
  render({ view, facts }) {
    const results = resultsOf(view);
    return [
      scores(results, facts),
      facts.drawnFrom === null ? whyTwoScores(facts) : null,
      scoresByGroup(results),
      metrics(results),
    ];
  },
};

/** @param {Results} results @param {Facts} facts */
function scores({ models }, facts) {
  const letters = models.some((row) => row.letters) && lettersTellMore(models);
  const any = (/** @type {keyof ModelRow} */ key) => models.some((row) => row[key]);
  // where questions are drawn, sigma is of a sample already, unless they come in clusters
  const isSampled = facts.drawnFrom === null || models.some((row) => row.sampled_sigma !== row.sigma);
  const second = (/** @type {Child} */ text) => h("small", null, text);
  const sigma = facts.drawnFrom === null ? term("sigma", "σ here") : "σ";
  /** @type {(Column<ModelRow> | false | null)[]} */
  const columns = [
    ["Model", (row) => name(row.name, 120)],
    letters && [term("letters", "Alike"), (row) => row.letters],
    [term("trials", "Trials"), (row) => count(row.trials)],
    any("prior_depth") && [[term("prior_trials", "R0"), second("a question")], (row) => number(row.prior_depth, 1)],
    facts.drawnFrom === null && [
      [term("bayes", "Bayes@N"), second("μ ± σ")],
      (row) => [score(facts, row.bayes), row.bayes !== null && second(`± ${score(facts, row.bayes_sigma)}`)],
    ],
    [
      [sigma, isSampled && second(term("sigma", "σ like these"))],
      ({ sigma, sampled_sigma: sampled }) => [
        score(facts, sigma, 2),
        sampled !== null && isSampled && second(score(facts, sampled, 2)),
      ],
    ],
    any("tokens") && ["Tokens", (row) => count(row.tokens)],
    any("usd") && ["USD", (row) => usd(row.usd)],
    any("gpu_seconds") && [["GPU hours", second("of requests")], (row) => number(row.gpu_seconds / 3600)],
    facts.serverTimeIsPaid && [
      term("server_time", "Server time"),
      (row) => (row.server_seconds === null ? "" : duration(row.server_seconds)),
    ],
    any("server_gpu_seconds") && [["GPU hours", second("held")], (row) => number((row.server_gpu_seconds ?? 0) / 3600)],
  ];
  return table({
    caption: "Details of the scores",
    columns,
    rows: models,
    texts: letters ? 2 : 1,
    key: (row) => row.name,
  });
}

/** Whether letters say more than tiers: some pair shares a letter or a tier, but not both. @param {ModelRow[]} rows */
function lettersTellMore(rows) {
  const isShared = (/** @type {ModelRow} */ a, /** @type {ModelRow} */ b) =>
    [...a.letters].some((letter) => b.letters.includes(letter));
  return rows.some((a, index) => rows.slice(0, index).some((b) => (a.tier === b.tier) !== isShared(a, b)));
}

/** Why two columns have different numbers for the same answers. @param {Facts} facts */
function whyTwoScores(facts) {
  const middle = (facts.low + facts.high) / 2;
  const target = facts.weights.length === 2 ? score(facts, middle, 0) : "the middle of the scale";
  return note(
    ["The score is ", term("score", "avg@N"), ", the plain average, and it alone decides. "],
    [term("bayes", "Bayes@N"), ` adds one imagined answer per category to each question, which pulls it to ${target}.`],
  );
}

/** A table for each grouping of the questions: by benchmark, or by their metadata. @param {Results} results */
function scoresByGroup({ groups, models }) {
  return [...new Set(groups.map((row) => row.by))].map((by) => {
    const cells = groups.filter((row) => row.by === by).map((row) => ({ ...row, column: row.group, value: row.score }));
    const hasGate = cells.some((cell) => cell.gate);
    return [
      intervalTable(`Scores by ${by}, with 95% intervals`, models, cells),
      hasGate ? null : note("No decision uses them alone."),
    ];
  });
}

/** Metrics of several draws, which the configuration asks for. @param {Results} results */
function metrics({ metrics, models }) {
  if (!metrics.length) return null;
  const cells = metrics.map((row) => ({ ...row, column: row.metric }));
  return [
    intervalTable("Metrics of several draws, with 95% intervals", models, cells),
    note("Each is the mean over all subsets of that many trials per question. No decision uses them."),
  ];
}

/**
 * Values with their intervals: a row for each model, a column for each name.
 * @param {string} caption @param {ModelRow[]} models @param {Cell[]} cells
 */
function intervalTable(caption, models, cells) {
  const text = (/** @type {Cell | undefined} */ cell) => {
    if (!cell || cell.value === null) return "–";
    const gate = cell.gate ? ` ${cell.gate}` : "";
    return `${percent(cell.value, 1)} (${percent(cell.lo, 1)} .. ${percent(cell.hi, 1)})${gate}`;
  };
  const byPlace = new Map(cells.map((cell) => [`${cell.column} ${cell.model}`, cell]));
  const columns = [...new Set(cells.map((cell) => cell.column))].map((title) =>
    column(title, (/** @type {ModelRow} */ row) => text(byPlace.get(`${title} ${row.name}`))),
  );
  return table({ caption, shown: true, rows: models, columns: [["Model", (row) => name(row.name)], ...columns] });
}
