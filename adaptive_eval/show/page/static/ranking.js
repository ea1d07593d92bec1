// The ranking: a table with a forest plot in it, tiers as row groups.

import { badge, linear, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { againstText, interval, narrowInterval, pairText, resultsOf, score, verdictWord, zText } from "./facts.js";
import { metricsTable } from "./metrics.js";
import { nothing, region } from "./parts.js";
import { isWhole, partOf } from "./rows.js";
import { term } from "./terms.js";
import { count, duration, name, number, percent, plain, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { ModelRow, PairRow, RunView, TermKey } from "./sent.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {{number: number | null, rows: ModelRow[], first: number}} Tier */
/** @typedef {{from: number, to: number, at: (value: number) => string, ticks: number[]}} PlotScale */

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {TermKey} [term]
 * @property {Child} [small]
 * @property {boolean} [digits]
 * @property {(row: ModelRow) => Child} cell
 */

const PAD = 3;
/** Longer names may take several lines. */
const LONG = 28;

/** @type {Section} */
export const ranking = {
  id: "ranking",
  title: "Ranking",
  short: "Ranking",
  render(state) {
    const { view, facts } = state;
    const { results } = view;
    if (!results) return nothing("There is no ranking before the first look.");
    const rows = results.models;
    const x = plotScale(rows, facts);
    const columns = columnsOf(view, facts);
    return [
      h(
        "p",
        { class: "quiet" },
        facts.drawnFrom === null
          ? "Scores are averages on these questions with 95% intervals. A new "
          : "Scores are averages over all questions, estimated from those that were asked, with 95% intervals. A new ",
        term("tier", "tier"),
        " begins where neighbours are resolved",
        rows.some((row) => row.letters)
          ? ["; models that share a ", term("letters", "letter"), " are not shown to differ."]
          : ".",
      ),
      region(
        "Ranking table",
        "",
        h(
          "table",
          { class: "ranking" },
          h("caption", { class: "unseen" }, "The models from best to worst"),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              h("th", { scope: "col", class: "tier" }, term("tier")),
              h("th", { scope: "col", class: "model" }, "Model"),
              h("th", { scope: "col", class: "digits" }, term("score", "Score"), h("small", null, "avg@N, 95%")),
              h("th", { scope: "col", class: "plot" }, axis(x, facts)),
              columns.map((column) =>
                h(
                  "th",
                  { scope: "col", class: column.digits === false ? null : "digits" },
                  column.term ? term(column.term, column.title) : column.title,
                  column.small ? h("small", null, column.small) : null,
                ),
              ),
            ),
          ),
          tiersOf(rows).map((tier) => tierBody(tier, columns, x, state)),
        ),
      ),
      facts.drawnFrom === null ? shrunk(facts) : null,
      metricsTable(results),
      results.reversals.length
        ? h(
            "p",
            { class: "note" },
            "In the other order since they were called: ",
            results.reversals.map(([better, worse], at) => [
              at ? ", " : "",
              name(better, 40),
              " is ahead of ",
              worse === null ? "the value" : name(worse, 40),
            ]),
            ".",
          )
        : null,
    ];
  },
};

/** Why two columns say different numbers of the same answers. @param {Facts} facts */
function shrunk(facts) {
  const middle = (facts.low + facts.high) / 2;
  return h(
    "p",
    { class: "note" },
    "The score is ",
    term("score", "avg@N"),
    ", the plain average, and it alone decides. ",
    term("bayes", "Bayes@N"),
    facts.weights.length === 2
      ? ` is drawn towards ${score(facts, middle, 0)} by one imagined answer of each category a question, `
      : " is drawn towards the middle of the scale by one imagined answer of each category a question, ",
    "so that it lies below a high score and above a low one.",
  );
}

/** @param {ModelRow[]} rows @returns {Tier[]} */
function tiersOf(rows) {
  /** @type {Tier[]} */
  const tiers = [];
  for (const [at, row] of rows.entries()) {
    const number = row.score === null ? null : row.tier;
    const tier = tiers.at(-1);
    if (tier?.number === number) tier.rows.push(row);
    else tiers.push({ number, rows: [row], first: at });
  }
  return tiers;
}

/** @param {Tier} given @param {Column[]} columns @param {PlotScale} x @param {State} state */
function tierBody({ number: tier, rows, first }, columns, x, state) {
  const { facts } = state;
  const unseen = (/** @type {number} */ at) =>
    isWhole(state, "ranking", first + at) ? null : partOf("ranking", first + at);
  return h(
    "tbody",
    { "data-key": `tier-${tier}-${rows[0].rank}` },
    rows.map((row, at) =>
      h(
        "tr",
        { "data-key": row.name, class: row.set_aside === null ? null : "aside", "data-unseen": unseen(at) },
        at === 0
          ? h("th", { scope: "rowgroup", rowspan: rows.length, class: "tier" }, h("span", null, tier ?? "–"))
          : null,
        h(
          "th",
          { scope: "row", class: row.name.length > LONG ? "model long" : "model" },
          name(row.name, 120),
          row.set_aside === null ? null : h("small", { class: "aside" }, "set aside: ", plain(row.set_aside, 120)),
          row.recorded === null ? null : h("small", null, " recorded: ", plain(row.recorded, 60)),
        ),
        h(
          "td",
          { class: "digits" },
          h("b", null, score(facts, row.score)),
          row.lo === null ? null : below(narrowInterval(facts, row.lo, row.hi)),
        ),
        unseen(at) === null
          ? [
              h("td", { class: "plot" }, forest(row, x, facts)),
              columns.map((column) => h("td", { class: column.digits === false ? null : "digits" }, column.cell(row))),
            ]
          : h("td", { colspan: 1 + columns.length }),
      ),
    ),
  );
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
    rows.some((row) => row.corrected !== null) && {
      title: "Corrected",
      term: "corrected",
      small: "for the early end",
      cell: (row) => score(facts, row.corrected),
    },
    any("letters") && { title: "Alike", term: "letters", digits: false, cell: (row) => row.letters },
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
      term: facts.drawnFrom === null ? "sigma_here" : undefined,
      small: likeThese ? term("sigma_like_these", "like these") : null,
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
  const { models, pairs } = resultsOf(view);
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

/** @param {PairRow | undefined} pair @param {Facts} facts */
function verdictCell(pair, facts) {
  if (!pair) return "";
  const z = pair.z === null ? null : h("span", { class: "z" }, zText(pair));
  const rho = pair.rho === null ? "" : `, ρ = ${percent(pair.rho, 2)}`;
  return h(
    "span",
    { class: "verdict", "data-tip": `${pairText(facts, pair)}: ${verdictWord(pair.verdict)}${rho}` },
    badge(pair.verdict),
    z,
  );
}

/** Parts of the plot's axis, at most: on a phone it has room for no more numbers. */
const TICKS = 3;

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
    ticks: ticks(from, to, TICKS),
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
