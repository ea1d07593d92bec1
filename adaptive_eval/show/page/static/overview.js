// The top of the page: what was found, how far the run is, what was to be decided and what is promised.

import { badge } from "./chart.js";
import { h } from "./dom.js";
import { VERDICTS, calledForBetter, resultsOf, score, unit, verdictWord } from "./facts.js";
import { term } from "./terms.js";
import { count, duration, listed, moment, name, number, percent, plain, plural, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */
/** @import { OtherCostRow, PairRow, RunCost, RunView, UsedSoFar, BesideFixed, WastedCost, GradingCost } from "./sent.js" */

/** @type {Record<string, string>} */
const REASONS = {
  settled: "everything is decided",
  out_of_reach: "the trials that are left would probably not decide the comparisons that are still open",
  blocked: "the comparisons that are still open need a model that was set aside, or grades that are missing",
  budget: "the next round no longer fits the budget",
  wall_time: "the cap on wall time was reached",
  gpu_time: "servers were held for all the GPU hours that the budget allows",
};

/** @type {Section} */
export const overview = {
  id: "overview",
  title: "Overview",
  short: "Overview",
  render(state) {
    const { view } = state;
    return [
      h("p", { class: "lead" }, headline(state)),
      view.results?.gate.length ? gate(view) : null,
      view.results ? verdictBar(state) : null,
      tiles(state),
      besides(view),
      budget(state),
      promise(view),
      warnings(view),
    ];
  },
};

/** The run's state in one word, with what is known of why. @param {RunView} view @param {boolean} live */
export function statusOf(view, live) {
  if (view.results) return view.results.run.status;
  if (view.error !== null && !live) return "stopped";
  return live ? "running" : "not judged yet";
}

/** @param {State} state */
function headline({ view, facts, live }) {
  if (!view.results) {
    const trials = view.trials.flat().reduce((sum, one) => sum + one, 0);
    return [
      `No look has been taken yet: ${plural(trials, "trial")} so far. `,
      live ? "The ranking appears with the first complete round." : (mishap(view) ?? ""),
    ];
  }
  const { run } = view.results;
  const why =
    run.status === "finished"
      ? `Finished: ${REASONS[run.reason ?? ""] ?? run.reason}.`
      : run.status === "stopped"
        ? (mishap(view) ?? "Stopped; the same command resumes the run.")
        : "Running.";
  return [found(view, facts), " ", h("span", { class: "quiet" }, why)];
}

/** The error that ended the run, where one did. @param {RunView} view */
function mishap(view) {
  return view.error === null ? null : `Stopped by an error: ${plain(view.error, 1000)}`;
}

/** The finding in one sentence. @param {RunView} view @param {Facts} facts @returns {Child} */
function found(view, facts) {
  const { models, pairs } = resultsOf(view);
  const scored = models.filter((row) => row.score !== null);
  if (!scored.length) return "No model has a score yet.";
  const { compares, value, baseline, first: wanted } = facts.objective;
  if (!compares) {
    const done = facts.verdicts.resolved;
    return `${done} of ${plural(pairs.length, "score")} ${done === 1 ? "is" : "are"} known as precisely as was asked.`;
  }
  if (value !== null) return aboveValue(view, facts);
  if (view.results?.gate.length) return throughGate(view);
  if (baseline !== null) return againstBaseline(view, facts);
  if (wanted !== null)
    return ["First come ", joined(scored.slice(0, wanted).map((row) => h("b", null, name(row.name, 40)))), "."];
  if (scored.length === 1) return [h("b", null, name(scored[0].name)), " is the only model."];
  const first = scored.filter((row) => row.tier === scored[0].tier);
  const shown = first.slice(0, 4).map((row) => h("b", null, name(row.name, 40)));
  const lead = joined(first.length > 4 ? [...shown, `${first.length - 4} more`] : shown);
  return first.length === 1 ? [lead, " is first."] : [lead, " share the first tier."];
}

/** @param {Child[]} nodes @returns {Child[]} */
function joined(nodes) {
  return nodes.flatMap((node, at) => (at === 0 ? [node] : [at === nodes.length - 1 ? " and " : ", ", node]));
}

/** @param {RunView} view @param {Facts} facts */
function aboveValue(view, facts) {
  const { pairs } = resultsOf(view);
  const called = pairs.filter((pair) => pair.verdict === "resolved");
  const above = called.filter((pair) => (pair.z ?? 0) > 0 === calledForBetter(view, pair)).length;
  const value = score(facts, facts.objective.value);
  const open = pairs.length - called.length;
  return `${plural(above, "model")} above ${value}, ${called.length - above} below it, ${open} not yet known to be either.`;
}

/** @param {RunView} view */
function throughGate(view) {
  const { gate } = resultsOf(view);
  const counted = ["PASS", "FAIL", "UNDECIDED"].map((outcome) => [
    gate.filter((row) => row.outcome === outcome).length,
    outcome,
  ]);
  return [
    "Gate against ",
    h("b", null, name(gate[0].baseline, 40)),
    ": ",
    listed(counted.filter(([many]) => many).map(([many, outcome]) => `${many} ${outcome}`)),
    ".",
  ];
}

/** @param {RunView} view @param {Facts} facts */
function againstBaseline(view, facts) {
  const { pairs } = resultsOf(view);
  const baseline = facts.objective.baseline ?? "";
  const called = pairs.filter((pair) => pair.verdict === "resolved");
  const winner = (/** @type {PairRow} */ pair) => (calledForBetter(view, pair) ? pair.better : pair.worse);
  const better = called.filter((pair) => winner(pair) !== baseline).length;
  const others = [
    [called.length - better, "worse"],
    [facts.verdicts.tied, "as good within delta"],
    [pairs.length - called.length - facts.verdicts.tied, "not decided"],
  ];
  return [
    `${plural(better, "model")} better than `,
    h("b", null, name(baseline, 40)),
    ...others.filter(([many]) => many).map(([many, what]) => `, ${many} ${what}`),
    ".",
  ];
}

/** What the gate says of every model. @param {RunView} view */
function gate(view) {
  return h(
    "ul",
    { class: "gate", "data-key": "gate" },
    resultsOf(view).gate.map((row) =>
      h(
        "li",
        { "data-key": row.model },
        h("b", { class: `gate-${row.outcome}` }, term("gate", row.outcome)),
        " ",
        name(row.model, 40),
        ": ",
        plain(row.why, 300),
      ),
    ),
  );
}

/** @param {State} state */
function verdictBar({ view, facts }) {
  const total = resultsOf(view).pairs.length;
  if (!total) return null;
  const shown = VERDICTS.filter((verdict) => facts.verdicts[verdict]);
  const text = listed(shown.map((verdict) => `${facts.verdicts[verdict]} ${verdictWord(verdict)}`));
  return h(
    "div",
    { class: "verdicts" },
    h(
      "div",
      { class: "bar", role: "img", "aria-label": `${plural(total, unit(facts))}: ${text}` },
      shown.map((verdict) => h("span", { class: `v-${verdict}`, style: { "flex-grow": facts.verdicts[verdict] } })),
    ),
    h(
      "ul",
      { class: "legend" },
      shown.map((verdict) =>
        h("li", null, badge(verdict, [`${facts.verdicts[verdict]} `, term(verdict, verdictWord(verdict))])),
      ),
    ),
    h("span", { class: "quiet" }, `of ${plural(total, unit(facts))}`),
  );
}

/** @param {State} state */
function tiles({ view, facts, pulse, live }) {
  const cost = {
    ...(view.results?.cost ?? view.spending.at(-1) ?? { trials: 0, tokens: 0, usd: 0, gpu_seconds: 0 }),
    ...(pulse?.spending ?? {}),
  };
  const fixed = facts.fixed;
  const elapsed = pulse?.elapsed ?? view.elapsed;
  const eta = pulse?.eta_seconds;
  const about = (/** @type {number | null | undefined} */ value, /** @type {(value: number) => string} */ format) =>
    value ? [`≈ ${format(value)} in a `, term("fixed_design", "fixed design")] : null;
  return h(
    "dl",
    { class: "tiles" },
    tile(
      "Trials",
      count(cost.trials),
      view.results ? [shareNote(cost.trials, fixed.trials), inVain(view.results.cost)] : null,
      view.results ? cost.trials / fixed.trials : null,
    ),
    cost.tokens ? tile("Tokens", count(cost.tokens), about(fixed.tokens, count)) : null,
    cost.usd ? tile("Cost", usd(cost.usd), about(fixed.usd, usd)) : null,
    cost.gpu_seconds ? tile("GPU time", duration(cost.gpu_seconds), about(fixed.gpu_seconds, duration)) : null,
    facts.serverTimeIsPaid
      ? tile("Server time", duration(view.results?.cost.server_seconds ?? 0), heldGpus(view.results?.cost))
      : null,
    tile(
      "Active",
      duration(elapsed),
      view.results ? [term("look", plural(view.looks.length, "look")), " taken"] : null,
    ),
    live && pulse ? tile("Pace", `${count(pulse.per_second)}/s`, "trials in the last seconds") : null,
    live && view.results?.run.status === "running"
      ? tile(
          "Still to go",
          eta === null || eta === undefined ? "–" : duration(eta),
          view.trials_to_go === null ? null : `at most ${count(view.trials_to_go)} trials`,
        )
      : null,
  );
}

/** What grades have used, and what was spent besides the stored answers of today's models. @param {RunView} view */
function besides(view) {
  const rows = view.results?.cost.beside ?? [];
  const grading = view.results?.cost.grading ?? null;
  const fixed = view.results?.cost.beside_fixed ?? null;
  if (!rows.length && !grading && !fixed) return null;
  return h(
    "ul",
    { class: "quiet", "data-key": "besides" },
    fixed ? h("li", null, besideFixed(fixed)) : null,
    grading
      ? h("li", null, `Of this for the grades of ${plural(grading.answers, "answer")}: ${graded(grading)}.`)
      : null,
    grading?.in_vain
      ? h("li", null, `And for verdicts that could not be read, or were replaced: ${graded(grading.in_vain)}.`)
      : null,
    together(rows).map((row) => h("li", null, `Besides, ${spentOn(row)}: ${listed(amounts(row))}. Caps count it.`)),
  );
}

/** Runs like this one beside the smallest fixed design that calls as many pairs. @param {BesideFixed} found */
function besideFixed(found) {
  const needs =
    found.number === null
      ? "not even the maximum of trials for everyone calls as many at one look"
      : `a fixed design needs ${number(found.number, 1)} for as many at one look`;
  return (
    `In ${count(found.worlds)} worlds drawn from what these answers leave open, a run takes ` +
    `${number(found.trials, 1)} trials a question and calls ${number(found.called, 1)} pairs; ${needs}. A run takes ` +
    `${number(found.cost, 2)} of that (80% interval: ${number(found.low, 2)} to ${number(found.high, 2)}).`
  );
}

/** What a judge or a verifier has used. @param {GradingCost | WastedCost} row */
function graded(row) {
  return listed([
    plural(row.tokens, "token"),
    ...(row.usd ? [usd(row.usd)] : []),
    ...(row.gpu_seconds ? [`${duration(row.gpu_seconds)} of GPUs`] : []),
  ]);
}

/** The rows, with one in place of several for what came of several models and was lost, or not wanted.
 * @param {readonly OtherCostRow[]} rows @returns {OtherCostRow[]} */
function together(rows) {
  /** @type {OtherCostRow[]} */
  const found = [];
  for (const row of rows) {
    const of = rows.filter((other) => other.what === row.what);
    if (of.length < 2 || !["lost", "unwanted"].includes(row.what)) found.push(row);
    else if (of[0] === row) found.push({ ...row, ...totals(of), model: `${of.length} models` });
  }
  return found;
}

/** @param {OtherCostRow[]} rows */
function totals(rows) {
  const sum = (/** @type {"trials" | "answers" | "tokens" | "usd" | "counted_gpu_seconds"} */ of) =>
    rows.reduce((all, row) => all + row[of], 0);
  return {
    trials: sum("trials"),
    answers: sum("answers"),
    tokens: sum("tokens"),
    usd: sum("usd"),
    counted_gpu_seconds: sum("counted_gpu_seconds"),
  };
}

/** @param {OtherCostRow} row */
function spentOn(row) {
  const model = plain(row.model ?? "", 40);
  if (row.what === "left") return `on ${model}, which the run has no more`;
  if (row.what === "lost") return `on answers of ${model} that never came`;
  if (row.what === "unwanted") return `on answers of ${model} that were asked ahead and never wanted`;
  if (row.what === "opponent") return `on answers of ${model}, with which all others are compared`;
  if (row.what === "greedy") return "on greedy answers, which came first (R0)";
  return row.what === "regrade"
    ? "on verdicts of a regrade that did not come to its end"
    : "on the verifier before any answer";
}

/** @param {OtherCostRow} row @returns {string[]} */
function amounts(row) {
  return [
    row.trials ? plural(row.trials, "trial") : "",
    row.answers ? plural(row.answers, "answer") : "",
    row.tokens ? plural(row.tokens, "token") : "",
    row.usd ? usd(row.usd) : "",
    row.counted_gpu_seconds ? `${duration(row.counted_gpu_seconds)} of GPUs` : "",
  ].filter(Boolean);
}

/** What idle slots were asked for, and no round came to want. @param {RunCost} cost @returns {Child} */
function inVain(cost) {
  const answers = cost.beside.reduce((sum, row) => sum + row.answers, 0);
  return answers ? `, and ${count(answers)} answers asked ahead and not used` : null;
}

/** What GPUs were held for. @param {RunCost | undefined} cost @returns {Child} */
function heldGpus(cost) {
  const held = term("server_time", "held, busy or not");
  return cost?.server_gpu_seconds ? [`${number(cost.server_gpu_seconds / 3600)} GPU hours `, held] : held;
}

/**
 * A trial count beside what it would be in a fixed design; earlier starts may have had a larger one.
 * @param {number} trials @param {number} fixed @returns {Child}
 */
function shareNote(trials, fixed) {
  if (trials > fixed) return `trials.max now allows ${count(fixed)}`;
  return [`${percent(trials / fixed)} of the ${count(fixed)} of a `, term("fixed_design", "fixed design")];
}

/** @param {string} label @param {Child} value @param {Child} note @param {number | null} [share] */
function tile(label, value, note, share = null) {
  return h(
    "div",
    { class: "tile", "data-key": label },
    h("dt", null, label),
    h(
      "dd",
      null,
      h("span", { class: "figure" }, value),
      share === null ? null : meter(share),
      note ? h("span", { class: "note" }, note) : null,
    ),
  );
}

/** @param {number} share */
function meter(share) {
  return h(
    "span",
    { class: "meter", "aria-hidden": "true" },
    h("span", { style: { width: `${Math.min(100, 100 * share).toFixed(1)}%` } }),
  );
}

/** @typedef {UsedSoFar & {elapsed: number}} Spent */

/** @type {[string, string, (used: Spent) => number, (value: number) => string][]} */
const CAPS = [
  ["trials", "trials", (used) => used.trials, count],
  ["tokens", "tokens", (used) => used.tokens, count],
  ["usd", "US dollars", (used) => used.usd, usd],
  ["gpu_hours", "GPU hours", (used) => used.gpu_seconds / 3600, (value) => value.toFixed(2)],
  ["wall_time", "wall time", (used) => used.elapsed, duration],
];

/**
 * The caps of the run with what was used of each: [key, label, used, cap, format].
 * @param {State} state @returns {[string, string, number, number, (value: number) => string][]}
 */
export function caps({ view, facts, pulse }) {
  const used = {
    trials: 0,
    tokens: 0,
    usd: 0,
    gpu_seconds: 0,
    ...(view.results?.cost ?? view.spending.at(-1) ?? {}),
    ...(pulse?.spending ?? {}),
    elapsed: pulse?.elapsed ?? view.elapsed,
  };
  for (const row of view.results?.cost.beside ?? []) {
    used.trials += row.trials;
    used.tokens += row.tokens;
    used.usd += row.usd;
    used.gpu_seconds += row.counted_gpu_seconds;
  }
  if (facts.launches) used.gpu_seconds = view.results?.cost.counted_gpu_seconds ?? used.gpu_seconds;
  const budget = facts.decisions.budget ?? {};
  return CAPS.flatMap(([key, label, of, format]) => {
    const cap = budget[key];
    return typeof cap === "number" ? [[key, label, of(used), cap, format]] : [];
  });
}

/** @param {State} state */
function budget(state) {
  const rows = caps(state);
  if (!rows.length) return null;
  return h(
    "div",
    { class: "budget" },
    h("h3", null, "Budget"),
    h(
      "ul",
      null,
      rows.map(([key, label, used, cap, format]) =>
        h(
          "li",
          { "data-key": key },
          h("span", null, label),
          h(
            "span",
            {
              class: "meter wide",
              role: "meter",
              "aria-label": `${label} used`,
              "aria-valuemin": 0,
              "aria-valuemax": cap,
              "aria-valuenow": used,
            },
            h("span", { style: { width: `${Math.min(100, (100 * used) / cap).toFixed(1)}%` } }),
          ),
          h("span", { class: "digits" }, `${format(used)} of ${format(cap)} (${percent(used / cap)})`),
        ),
      ),
    ),
  );
}

/** @param {RunView} view */
function promise(view) {
  const { words } = view;
  const rows = [
    ["Objective", words.objective],
    ["Rule", words.rule],
    ["Promise", words.promise],
    ["Allocation", words.allocation],
    ["Same seeds", view.by_trial.join(" ")],
  ];
  return h(
    "dl",
    { class: "promise" },
    rows
      .filter(([, text]) => text)
      .map(([label, text]) => h("div", null, h("dt", null, label), h("dd", null, plain(text, 2000)))),
  );
}

/** @param {RunView} view */
function warnings(view) {
  const all = view.results?.warnings ?? [];
  if (!all.length) return null;
  return h(
    "div",
    { class: "warnings" },
    h("h3", null, plural(all.length, "warning")),
    h(
      "ul",
      null,
      all.map((one) =>
        h(
          "li",
          null,
          h("span", { class: "kind" }, plain(one.kind)),
          one.model === null ? null : [h("b", null, name(one.model, 60)), ": "],
          plain(one.text, 1000),
        ),
      ),
    ),
  );
}

/** The line under the run's name. @param {RunView} view */
export function subtitle(view) {
  const run = view.results?.run;
  return [
    plural(view.models.length, "model"),
    " · ",
    plural(view.questions.length, "question"),
    run
      ? [" · begun ", moment(run.created), " · as of ", moment(run.updated)]
      : view.events.length
        ? [" · begun ", moment(view.events[0].at)]
        : null,
  ];
}
