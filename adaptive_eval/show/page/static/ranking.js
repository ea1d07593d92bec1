// The ranking: a table with a forest plot in it, tiers as row groups.

import { badge, linear, ticks } from "./chart.js";
import { h, s } from "./dom.js";
import { againstText, interval, narrowInterval, pairText, score, verdictWord, zText } from "./facts.js";
import { nothing, region } from "./parts.js";
import { count, name, number, percent, plain, usd } from "./text.js";

const PAD = 3;

export const ranking = {
  id: "ranking",
  title: "Ranking",
  short: "Ranking",
  render({ view, facts }) {
    const rows = view.results?.models;
    if (!rows) return nothing("There is no ranking before the first look.");
    const x = plotScale(rows, facts);
    const columns = columnsOf(view, facts);
    return [
      region(
        "Ranking table",
        "",
        h(
          "table",
          { class: "ranking" },
          h(
            "caption",
            null,
            "Scores are averages on these questions with 95% intervals; models of one tier are not told apart.",
          ),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              h("th", { scope: "col", class: "tier" }, "Tier"),
              h("th", { scope: "col", class: "model" }, "Model"),
              h("th", { scope: "col", class: "digits" }, "Score", h("small", null, "avg@N, 95%")),
              h("th", { scope: "col", class: "plot" }, axis(x, facts)),
              columns.map((column) =>
                h(
                  "th",
                  { scope: "col", class: column.digits === false ? null : "digits", "data-tip": column.tip },
                  column.title,
                  column.small ? h("small", null, column.small) : null,
                ),
              ),
            ),
          ),
          tiersOf(rows).map((tier) => tierBody(tier, columns, x, view, facts)),
        ),
      ),
      view.results.reversals.length
        ? h(
            "p",
            { class: "note" },
            "Turned since they were called: ",
            view.results.reversals.map(([better, worse], at) => [
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

function tiersOf(rows) {
  const tiers = [];
  for (const row of rows) {
    const number = row.score === null ? null : row.tier;
    if (tiers.at(-1)?.number === number) tiers.at(-1).rows.push(row);
    else tiers.push({ number, rows: [row] });
  }
  return tiers;
}

function tierBody({ number: tier, rows }, columns, x, view, facts) {
  return h(
    "tbody",
    { "data-key": `tier-${tier}-${rows[0].rank}` },
    rows.map((row, at) =>
      h(
        "tr",
        { "data-key": row.name, class: row.set_aside === null ? null : "aside" },
        at === 0
          ? h("th", { scope: "rowgroup", rowspan: rows.length, class: "tier" }, h("span", null, tier ?? "–"))
          : null,
        h(
          "th",
          { scope: "row", class: "model", "data-tip": row.name.length > 28 ? plain(row.name) : null },
          name(row.name, 60),
          row.set_aside === null ? null : h("small", { class: "aside" }, "set aside: ", plain(row.set_aside, 120)),
        ),
        h(
          "td",
          { class: "digits" },
          h("b", null, score(facts, row.score)),
          row.lo === null ? null : below(narrowInterval(facts, row.lo, row.hi)),
        ),
        h("td", { class: "plot" }, forest(row, x, facts)),
        columns.map((column) => h("td", { class: column.digits === false ? null : "digits" }, column.cell(row, at))),
      ),
    ),
  );
}

function columnsOf(view, facts) {
  const rows = view.results.models;
  const against = comparisonsBeside(view, facts);
  const any = (key) => rows.some((row) => row[key]);
  return [
    against && { title: "Verdict", small: against.title, digits: false, cell: (row) => against.cell(row) },
    { title: "Trials", cell: (row) => count(row.trials) },
    any("prior_depth") && {
      title: "R0",
      small: "a question",
      tip: "Outcomes of an earlier run that the score is made of too",
      cell: (row) => number(row.prior_depth, 1),
    },
    {
      title: "Bayes@N",
      small: "μ ± σ",
      cell: (row) => [score(facts, row.bayes), row.bayes !== null && below(`± ${score(facts, row.bayes_sigma)}`)],
    },
    {
      title: "σ here",
      small: "like these",
      tip: "Uncertainty of the score on these questions, and where they stand for questions like these",
      cell: (row) => [
        score(facts, row.sigma, 2),
        row.sampled_sigma === null ? null : below(score(facts, row.sampled_sigma, 2)),
      ],
    },
    any("tokens") && { title: "Tokens", cell: (row) => count(row.tokens) },
    any("usd") && { title: "USD", cell: (row) => usd(row.usd) },
    any("gpu_seconds") && { title: "GPU hours", cell: (row) => number(row.gpu_seconds / 3600) },
  ].filter(Boolean);
}

/** The second line of a cell. */
function below(text) {
  return h("small", null, text);
}

/** The comparison that is shown beside a model: with the next one, the only one it has, or the one least decided. */
function comparisonsBeside(view, facts) {
  const pairs = view.results.pairs;
  if (!pairs.length) return null;
  const kind = facts.decisions.objective?.kind;
  const of = (row) => pairs.filter((pair) => pair.better === row.name || pair.worse === row.name);
  if (kind === "ranking") {
    const next = new Map(view.results.models.map((row, at, all) => [row.name, all[at + 1]?.name]));
    return {
      title: "against the next",
      cell: (row) =>
        verdictCell(
          of(row).find((pair) => pair.better === row.name && pair.worse === next.get(row.name)),
          facts,
        ),
    };
  }
  const margin = (pair) => (pair.z === null || pair.boundary === null ? -Infinity : Math.abs(pair.z) - pair.boundary);
  const baseline = facts.decisions.objective?.baseline;
  const nearest = (row) =>
    row.name === baseline ? undefined : of(row).sort((one, other) => margin(one) - margin(other))[0];
  const title =
    { baseline: "against the baseline", threshold: againstText(facts), precision: againstText(facts) }[kind] ??
    "least decided";
  return { title, cell: (row) => verdictCell(nearest(row), facts) };
}

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

/** Where scores lie in the plot, in percent of its width, so that it takes any width undistorted. */
function plotScale(rows, facts) {
  const ends = rows.flatMap((row) =>
    row.score === null ? [] : [Math.max(row.lo ?? row.score, facts.low), Math.min(row.hi ?? row.score, facts.high)],
  );
  if (!ends.length) ends.push(facts.low, facts.high);
  let [from, to] = [Math.min(...ends), Math.max(...ends)];
  const room = Math.max(0.04 * (to - from), 0.005 * (facts.high - facts.low));
  [from, to] = [from - room, to + room];
  const place = linear(from, to, PAD, 100 - PAD);
  return { from, to, at: (value) => `${place(value).toFixed(2)}%`, ticks: ticks(from, to, 5) };
}

function axis(x, facts) {
  const label = (value) => (facts.inPercent ? percent(value, 100 * (x.to - x.from) < 4 ? 1 : 0) : String(value));
  return s(
    "svg",
    { height: 18, role: "img", "aria-label": `Scores from ${score(facts, x.from)} to ${score(facts, x.to)}` },
    x.ticks.map((value) => s("text", { class: "tick", x: x.at(value), y: 13, "text-anchor": "middle" }, label(value))),
  );
}

function forest(row, x, facts) {
  const grid = x.ticks.map((value) =>
    s("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: 0, y2: "100%" }),
  );
  const label = row.score === null ? "no score" : `${score(facts, row.score)}, ${interval(facts, row.lo, row.hi)}`;
  const known =
    row.score === null
      ? null
      : [
          row.lo === null
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
