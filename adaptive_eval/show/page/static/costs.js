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
  const { view, pulse, live } = state;
  const totals = totalsOf(state);
  const looks = term("look", plural(view.looks.length, "look"));
  const left = view.results === null ? null : `about ${plural(view.results.trials_to_go, "trial")}`;
  return h("dl", { class: "tiles" }, [
    tile("Trials", count(totals.trials), view.allowed),
    totals.tokens ? tile("Tokens", count(totals.tokens)) : null,
    totals.usd ? tile("Cost", usd(totals.usd)) : null,
    totals.gpu_seconds ? tile("GPU time", duration(totals.gpu_seconds)) : null,
    view.server_seconds === null ? null : tile("Server time", duration(view.server_seconds), heldGpus(view)),
    tile("Duration", duration(pulse?.elapsed ?? view.elapsed), view.results ? looks : null),
    live && pulse ? tile("Speed", `${count(pulse.per_second)}/s`, "trials in the last seconds") : null,
    live && view.results?.run.status === "running" ? tile("Still to go", duration(pulse?.eta_seconds), left) : null,
  ]);
}

/** @param {PageView} view @returns {Child} */
function heldGpus({ results }) {
  const held = term("server_time", "held, busy or not");
  const seconds = results?.cost.server_gpu_seconds;
  return seconds ? [`${number(seconds / 3600)} GPU hours `, held] : held;
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
