// The cost of a run: in figures, compared with its caps, and what was spent besides the answers that count.

import { h } from "./dom.js";
import { term } from "./terms.js";
import { count, duration, number, percent, plural, usd } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { State } from "./parts.js" */

/** The newest totals. @param {State} state */
function totalsOf({ view, pulse }) {
  return { ...(view.results?.cost ?? view.used.spent), ...pulse?.spending };
}

/** @param {State} state */
export function tiles(state) {
  const { view, facts, pulse, live } = state;
  const totals = totalsOf(state);
  const cost = view.results?.cost;
  const answers = { lost: 0, discarded: 0 };
  for (const row of cost?.beside ?? []) answers[row.what === "discarded" ? "discarded" : "lost"] += row.answers;
  const unstored = Object.entries(answers).map(([kind, sum]) => (sum ? `, and ${plural(sum, `${kind} answer`)}` : ""));
  const looks = term("look", plural(view.looks.length, "look"));
  const left = view.results === null ? null : `about ${plural(view.results.trials_to_go, "trial")}`;
  return h("dl", { class: "tiles" }, [
    tile("Trials", count(totals.trials), cost ? [allowed(totals.trials, cost.allowed_trials), ...unstored] : null),
    totals.tokens ? tile("Tokens", count(totals.tokens)) : null,
    totals.usd ? tile("Cost", usd(totals.usd)) : null,
    totals.gpu_seconds ? tile("GPU time", duration(totals.gpu_seconds)) : null,
    facts.serverTimeIsPaid ? tile("Server time", duration(cost?.server_seconds ?? 0), heldGpus(cost)) : null,
    tile("Duration", duration(pulse?.elapsed ?? view.elapsed), view.results ? looks : null),
    live && pulse ? tile("Speed", `${count(pulse.per_second)}/s`, "trials in the last seconds") : null,
    live && view.results?.run.status === "running" ? tile("Still to go", duration(pulse?.eta_seconds), left) : null,
  ]);
}

/** The cost of a run, in a line. @param {RunCost} cost */
export function inShort(cost) {
  const parts = [`${plural(cost.trials, "trial")}, ${allowed(cost.trials, cost.allowed_trials)}`];
  if (cost.tokens) parts.push(`${count(cost.tokens)} tokens`);
  return [...parts, ...money(cost.usd, cost.gpu_seconds)].join(" · ");
}

/** @param {number} dollars @param {number | null} gpuSeconds */
function money(dollars, gpuSeconds) {
  return [dollars ? usd(dollars) : "", gpuSeconds ? `${duration(gpuSeconds)} of GPUs` : ""].filter(Boolean);
}

/** @param {RunCost | undefined} cost @returns {Child} */
function heldGpus(cost) {
  const held = term("server_time", "held, busy or not");
  return cost?.server_gpu_seconds ? [`${number(cost.server_gpu_seconds / 3600)} GPU hours `, held] : held;
}

/** The allowed trials; earlier starts may have allowed more. @param {number} trials @param {number} limit */
function allowed(trials, limit) {
  return trials > limit ? `${count(limit)} are allowed now` : `at most ${count(limit)} were allowed`;
}

/** @param {string} label @param {Child} value @param {Child} [remark] */
function tile(label, value, remark) {
  return h("div", { class: "tile", "data-key": label }, [
    h("dt", null, label),
    h("dd", null, h("span", { class: "figure" }, value), remark ? h("span", { class: "note" }, remark) : null),
  ]);
}

/** @type {Record<string, [label: string, format: (value: number) => string]>} */
const CAPS = {
  trials: ["trials", count],
  tokens: ["tokens", count],
  usd: ["US dollars", usd],
  gpu_seconds: ["GPU hours", (seconds) => (seconds / 3600).toFixed(2)],
  wall_seconds: ["wall time", duration],
};

/** The caps of the run with what was used of each. @param {State} state */
export function budget({ view, pulse }) {
  const rows = (pulse ?? view).caps.map(({ name, used, cap }) => {
    const [label, format] = CAPS[name];
    return meter(label, used, cap, `${format(used)} of ${format(cap)} (${percent(used / cap)})`);
  });
  return rows.length ? h("div", { class: "budget" }, h("h3", null, "Budget"), h("ul", null, rows)) : null;
}

/** A bar with its text. @param {string} label @param {number} used @param {number} limit @param {string} text */
export function meter(label, used, limit, text) {
  const values = { "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": used };
  const bar = h("span", { style: { width: `${Math.min(100, (100 * used) / limit).toFixed(1)}%` } });
  return h("li", { "data-key": label }, [
    h("span", null, label),
    h("span", { class: "meter", role: "meter", "aria-label": `${label} used`, ...values }, bar),
    h("span", { class: "digits" }, text),
  ]);
}
