// What else is known of the scores: the numbers of the comparisons, and columns that few readers need.

import { badge } from "./chart.js";
import { h } from "./dom.js";
import { againstText, pairText, resultsOf, score, zText } from "./facts.js";
import { groupTables } from "./groups.js";
import { metricsTable } from "./metrics.js";
import { region, table } from "./parts.js";
import { term } from "./terms.js";
import { count, duration, name, number, percent, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts, Pair } from "./facts.js" */
/** @import { Section } from "./parts.js" */

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {TermKey} [term]
 * @property {Child} [small]
 * @property {boolean} [digits]
 * @property {(row: ModelRow) => Child} cell
 */

/** @type {Section} */
export const details = {
  id: "details",
  title: "Details of the scores",
  isThere: ({ view }) => view.results !== null,
  render({ view, facts }) {
    const results = resultsOf(view);
    const columns = columnsOf(view, facts);
    const texts = 1 + columns.filter((column) => column.digits === false).length;
    const caption = "Details of the scores";
    return [
      region(
        caption,
        "",
        table({
          caption,
          head: ["Model", ...columns.map(heading)],
          rows: results.models.map((row) => [name(row.name, 120), ...columns.map((column) => column.cell(row))]),
          texts,
          key: (at) => results.models[at].name,
        }),
      ),
      facts.drawnFrom === null ? shrunk(facts) : null,
      groupTables(results),
      metricsTable(results),
      results.reversals.length && !facts.gate
        ? h("p", { class: "note" }, [
            "In the other order since they were called: ",
            results.reversals.map(([better, worse], at) => [
              at ? ", " : "",
              name(better, 40),
              " is ahead of ",
              worse === null ? "the value" : name(worse, 40),
            ]),
            ".",
          ])
        : null,
    ];
  },
};

/** @param {Column} column @returns {Child} */
function heading(column) {
  return [
    column.term ? term(column.term, column.title) : column.title,
    column.small ? h("small", null, column.small) : null,
  ];
}

/** Whether letters say more than tiers: some pair shares one of the two and not the other. @param {ModelRow[]} rows */
function lettersTellMore(rows) {
  return rows.some((one, at) =>
    rows
      .slice(0, at)
      .some((other) => (one.tier === other.tier) !== [...one.letters].some((letter) => other.letters.includes(letter))),
  );
}

/** Why two columns say different numbers of the same answers. @param {Facts} facts */
function shrunk(facts) {
  const middle = (facts.low + facts.high) / 2;
  return h("p", { class: "note" }, [
    "The score is ",
    term("score", "avg@N"),
    ", the plain average, and it alone decides. ",
    term("bayes", "Bayes@N"),
    facts.weights.length === 2
      ? ` is drawn towards ${score(facts, middle, 0)} by one imagined answer of each category a question, `
      : " is drawn towards the middle of the scale by one imagined answer of each category a question, ",
    "so that it lies below a high score and above a low one.",
  ]);
}

/** @param {RunView} view @param {Facts} facts @returns {Column[]} */
function columnsOf(view, facts) {
  const rows = resultsOf(view).models;
  const against = comparisonsBeside(view, facts);
  const any = (/** @type {keyof ModelRow} */ key) => rows.some((row) => row[key]);
  // where questions are drawn, sigma is of a sample already, unless they come in clusters
  const likeThese = facts.drawnFrom === null || rows.some((row) => row.sampled_sigma !== row.sigma);
  /** @type {(Column | false | null)[]} */
  const columns = [
    against && {
      title: "Verdict",
      small: [against.title, ": ", term("z"), " of ", term("boundary", "boundary")],
      digits: false,
      cell: (row) => against.cell(row),
    },
    any("letters") &&
      lettersTellMore(rows) && { title: "Alike", term: "letters", digits: false, cell: (row) => row.letters },
    rows.some((row) => row.corrected !== null) && {
      title: "Corrected",
      term: "corrected",
      small: "for the early end",
      cell: (row) => score(facts, row.corrected),
    },
    { title: "Trials", term: "trials", cell: (row) => count(row.trials) },
    any("prior_depth") && {
      title: "R0",
      term: "prior_trials",
      small: "a question",
      cell: (row) => number(row.prior_depth, 1),
    },
    facts.drawnFrom === null && {
      title: "Bayes@N",
      term: "bayes",
      small: "μ ± σ",
      cell: (row) => [score(facts, row.bayes), row.bayes !== null && below(`± ${score(facts, row.bayes_sigma)}`)],
    },
    {
      title: facts.drawnFrom === null ? "σ here" : "σ",
      term: facts.drawnFrom === null ? "sigma" : undefined,
      small: likeThese ? term("sigma", "like these") : null,
      cell: (row) => [
        score(facts, row.sigma, 2),
        row.sampled_sigma === null || !likeThese ? null : below(score(facts, row.sampled_sigma, 2)),
      ],
    },
    any("tokens") && { title: "Tokens", cell: (row) => count(row.tokens) },
    any("usd") && { title: "USD", cell: (row) => usd(row.usd) },
    any("gpu_seconds") && {
      title: "GPU hours",
      small: "of requests",
      cell: (row) => number(row.gpu_seconds / 3600),
    },
    facts.serverTimeIsPaid && {
      title: "Server time",
      term: "server_time",
      cell: (row) => (row.server_seconds === null ? "" : duration(row.server_seconds)),
    },
    any("server_gpu_seconds") && {
      title: "GPU hours",
      small: "held",
      cell: (row) => number((row.server_gpu_seconds ?? 0) / 3600),
    },
  ];
  return columns.filter((column) => column !== null && column !== false);
}

/** The second line of a cell. @param {string} text */
function below(text) {
  return h("small", null, text);
}

/**
 * The comparison that is shown beside a model: with the next one, the only one it has, or the one least decided.
 * @param {RunView} view @param {Facts} facts @returns {{title: string, cell: (row: ModelRow) => Child} | null}
 */
function comparisonsBeside(view, facts) {
  const { models } = resultsOf(view);
  const { pairs } = facts;
  if (!pairs.length) return null;
  const { compares, in_order: inOrder, baseline, value } = facts.objective;
  const of = (/** @type {ModelRow} */ row) =>
    pairs.filter((pair) => pair.better === row.name || pair.worse === row.name);
  if (inOrder) {
    const next = new Map(models.map((row, at, all) => [row.name, all[at + 1]?.name]));
    return {
      title: "against the next",
      cell: (row) =>
        verdictCell(
          of(row).find((pair) => pair.better === row.name && pair.worse === next.get(row.name)),
          facts,
        ),
    };
  }
  const margin = (/** @type {PairRow} */ pair) =>
    pair.z === null || pair.boundary === null ? -Infinity : Math.abs(pair.z) - pair.boundary;
  const nearest = (/** @type {ModelRow} */ row) =>
    row.name === baseline ? undefined : of(row).sort((one, other) => margin(one) - margin(other))[0];
  const lone = value !== null || !compares;
  const title = baseline !== null ? "against the baseline" : lone ? againstText(facts) : "least decided";
  return { title, cell: (row) => verdictCell(nearest(row), facts) };
}

/** @param {Pair | undefined} pair @param {Facts} facts */
function verdictCell(pair, facts) {
  if (!pair) return "";
  const z = pair.z === null ? null : h("span", { class: "z" }, zText(pair));
  const rho = pair.rho === null ? "" : `, ρ = ${percent(pair.rho, 2)}`;
  return h("span", { class: "verdict", title: `${pairText(facts, pair)}: ${pair.word}${rho}` }, [
    badge(pair.verdict, pair.word),
    z,
  ]);
}
