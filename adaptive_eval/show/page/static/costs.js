// What a run has cost: in figures, how many trials were allowed, beside its caps, and what was spent besides.

import { h } from "./dom.js";
import { term } from "./terms.js";
import { count, duration, listed, number, percent, plain, plural, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { State } from "./parts.js" */

/** @param {State} state */
export function tiles({ view, facts, pulse, live }) {
  const cost = {
    ...(view.results?.cost ?? view.spending.at(-1) ?? { trials: 0, tokens: 0, usd: 0, gpu_seconds: 0 }),
    ...(pulse?.spending ?? {}),
  };
  const elapsed = pulse?.elapsed ?? view.elapsed;
  const eta = pulse?.eta_seconds;
  return h("dl", { class: "tiles" }, [
    tile(
      "Trials",
      count(cost.trials),
      view.results ? [allowed(cost.trials, view.results.cost), inVain(view.results.cost)] : null,
    ),
    cost.tokens ? tile("Tokens", count(cost.tokens), null) : null,
    cost.usd ? tile("Cost", usd(cost.usd), null) : null,
    cost.gpu_seconds ? tile("GPU time", duration(cost.gpu_seconds), null) : null,
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
          view.trials_to_go === null ? null : `about ${plural(view.trials_to_go, "trial")}`,
        )
      : null,
  ]);
}

/** What a run has cost, in a line. @param {RunCost} cost */
export function inShort(cost) {
  const parts = [`${plural(cost.trials, "trial")}, ${allowed(cost.trials, cost)}`];
  if (cost.tokens) parts.push(`${count(cost.tokens)} tokens`);
  if (cost.usd) parts.push(usd(cost.usd));
  if (cost.gpu_seconds) parts.push(`${duration(cost.gpu_seconds)} of GPUs`);
  return parts.join(" · ");
}

/** What was asked for and never came. @param {RunCost} cost @returns {Child} */
function inVain(cost) {
  const answers = cost.beside.reduce((sum, row) => sum + row.answers, 0);
  return answers ? `, and ${plural(answers, "lost answer")}` : null;
}

/** What GPUs were held for. @param {RunCost | undefined} cost @returns {Child} */
function heldGpus(cost) {
  const held = term("server_time", "held, busy or not");
  return cost?.server_gpu_seconds ? [`${number(cost.server_gpu_seconds / 3600)} GPU hours `, held] : held;
}

/** How many trials were allowed; earlier starts may have allowed more than now. @param {number} trials @param {RunCost} cost */
function allowed(trials, { allowed_trials }) {
  const most = count(allowed_trials);
  return trials > allowed_trials ? `${most} are allowed now` : `at most ${most} were allowed`;
}

/** @param {string} label @param {Child} value @param {Child} note */
function tile(label, value, note) {
  return h("div", { class: "tile", "data-key": label }, [
    h("dt", null, label),
    h("dd", null, h("span", { class: "figure" }, value), note ? h("span", { class: "note" }, note) : null),
  ]);
}

/** What grades have used, and what was spent besides the stored answers of today's models. @param {RunView} view */
export function besides(view) {
  const rows = view.besides;
  const grading = view.results?.cost.grading ?? null;
  if (!rows.length && !grading) return null;
  return h("ul", { class: "quiet", "data-key": "besides" }, [
    grading ? h("li", null, `Of this, to grade ${plural(grading.answers, "answer")}: ${graded(grading)}.`) : null,
    grading?.in_vain
      ? h("li", null, `And for verdicts that could not be read, or were replaced: ${graded(grading.in_vain)}.`)
      : null,
    rows.map((row) => h("li", null, `Besides, on ${plain(row.what)}: ${listed(amounts(row))}.`)),
  ]);
}

/** What a judge or a verifier has used. @param {GradingCost | WastedCost} row */
function graded(row) {
  return listed([
    plural(row.tokens, "token"),
    ...(row.usd ? [usd(row.usd)] : []),
    ...(row.gpu_seconds ? [`${duration(row.gpu_seconds)} of GPUs`] : []),
  ]);
}

/** @param {OtherCostRow} row @returns {string[]} */
function amounts(row) {
  return [
    row.trials ? plural(row.trials, "trial") : "",
    row.answers ? plural(row.answers, row.trials ? "lost answer" : "answer") : "",
    row.tokens ? plural(row.tokens, "token") : "",
    row.usd ? usd(row.usd) : "",
    row.counted_gpu_seconds ? `${duration(row.counted_gpu_seconds)} of GPUs` : "",
  ].filter(Boolean);
}

/** @typedef {Omit<Spending, "at"> & {elapsed: number}} Spent */

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
function caps({ view, facts, pulse }) {
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
export function budget(state) {
  const rows = caps(state);
  if (!rows.length) return null;
  return h("div", { class: "budget" }, [
    h("h3", null, "Budget"),
    h(
      "ul",
      null,
      rows.map(([key, label, used, cap, format]) =>
        h("li", { "data-key": key }, [
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
        ]),
      ),
    ),
  ]);
}
