// The posterior of every model on every question: its mean and interval.

import { linear } from "./chart.js";
import { h, on } from "./dom.js";
import { countsText, interval, notJudged, posteriorOf, score } from "./facts.js";
import { grid, namesRoom, onGrid } from "./grid.js";
import { filterField, filtered, sumOf } from "./parts.js";
import { term } from "./terms.js";
import { count, plain, plural } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Grid } from "./grid.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {{index: number, question: QuestionView, mean: number, spread: number}} Row */

const PAGE = 200;
const PAD = 5;
const MAX_NAMED = 6;
const onCells = onGrid(gridOf);

/** @type {Section} */
export const posteriors = {
  id: "questions",
  title: "Questions",
  render(state) {
    const { view, facts, ui } = state;
    const rows = rowsOf(state);
    const left = rows.length - (ui.questions ?? PAGE);
    const scale = `from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}`;
    const counts = { shown: rows.length, all: view.questions.length, unit: "question" };
    const more = { type: "button", class: "more", "data-next": "" };
    return [
      h("p", null, [
        ["The ", term("bayes", "posterior"), " of each model's score on each question: the bar is the "],
        `95% interval, the tick the mean, ${scale}. Choose one to see everything about the question.`,
      ]),
      unjudged(view, facts),
      filterField({ placeholder: "id, text or cluster", ...counts }, orders(facts, ui.order)),
      rows.length ? grid("Posterior of each model on each question. Enter opens the question.", "chart") : null,
      left > 0 ? h("button", more, `Show ${count(Math.min(PAGE, left))} more questions`) : null,
    ];
  },
  painted: onCells.painted,
  wire(root, state) {
    onCells.wire(root, state);
    const change = (/** @type {State["ui"]} */ choice) => {
      Object.assign(state.ui, choice);
      state.refresh("questions");
    };
    on(root, "input", "[data-filter]", (/** @type {HTMLInputElement} */ { value }) => change({ filter: value }));
    on(root, "change", "[data-order]", (/** @type {HTMLSelectElement} */ { value }) => change({ order: value }));
    on(root, "click", "[data-next]", () => change({ questions: (state.ui.questions ?? PAGE) + PAGE }));
  },
};

/** By what questions can be ordered. @param {Facts} facts @param {string} [chosen] */
function orders(facts, chosen = "") {
  const options = [
    ["", "as they were asked"],
    ["mean", "hardest first"],
    ["spread", "models furthest apart first"],
    ...facts.names.map((model) => [`model:${model}`, `best of ${plain(model, 40)} first`]),
  ].map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("label", null, "Order ", h("select", { "data-order": "" }, options));
}

/** Trials that no look has used, though they are shown here. @param {PageView} view @param {Facts} facts */
function unjudged(view, facts) {
  const rows = facts.names
    .map((model) => ({ model, trials: notJudged(view, facts, model) }))
    .filter(({ trials }) => trials > 0);
  if (!rows.length) return null;
  const named = rows.slice(0, MAX_NAMED).map(({ model, trials }) => `${plain(model, 40)} ${count(trials)}`);
  const more = rows.length > MAX_NAMED ? ` and ${rows.length - MAX_NAMED} more` : "";
  const total = count(sumOf(rows, ({ trials }) => trials));
  return h("p", { class: "fresh" }, [
    `All ${plural(sumOf(view.trials.flat(), Number), "trial")} that are graded count here; `,
    term("trials", "no look has judged"),
    ` ${total} of them${view.results?.run.status === "finished" ? "" : " yet"}`,
    view.looks.length || view.results ? ` (${named.join(", ")}${more}).` : ": the bars are hollow.",
  ]);
}

/** The questions that the filter leaves, in the order that was chosen. @param {State} state @returns {Row[]} */
function rowsOf({ view, facts, ui: { filter = "", order = "" } }) {
  const rows = view.questions.map((question, index) => {
    const all = facts.names.map((model) => posteriorOf(view, facts, model, index));
    const asked = all.filter((posterior) => posterior.counts.some(Boolean));
    const means = (asked.length ? asked : all).map((posterior) => posterior.mean);
    const mean = sumOf(means, Number) / means.length;
    return { index, question, mean, spread: Math.max(...means) - Math.min(...means) };
  });
  const model = order.slice("model:".length);
  const value = (/** @type {Row} */ { index, mean, spread }) => {
    if (order === "mean") return mean;
    if (order === "spread") return -spread;
    return facts.columnOf.has(model) ? -posteriorOf(view, facts, model, index).mean : 0;
  };
  const texts = (/** @type {Row} */ { question }) => [question.id, question.prompt, question.cluster ?? ""];
  return filtered(rows, filter, texts).sort((a, b) => value(a) - value(b) || a.index - b.index);
}

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui, width, printing } = state;
  const rows = rowsOf(state).slice(0, ui.questions ?? PAGE);
  const names = rows.map(({ question }) => plain(question.id, 17));
  const left = namesRoom(names, 0.25 * width);
  const lane = Math.floor((width - left - 2) / Math.max(1, facts.names.length));
  const isHollow = !view.looks.length && !view.results;
  const row = rows.findIndex(({ index }) => index === ui.lane?.[0]);
  const column = facts.names.indexOf(ui.lane?.[1] ?? "");
  return {
    rows: names,
    heads: facts.names,
    columns: facts.names.length,
    left,
    width: Math.min(150, Math.max(printing ? 30 : 44, lane)),
    height: 24,
    chosen: row < 0 || column < 0 ? null : [row, column],
    draw(pen, [row, column], box) {
      const { counts, mean, lo, hi } = posteriorOf(view, facts, facts.names[column], rows[row].index);
      const x = linear(facts.low, facts.high, box.left + PAD, box.left + box.width - PAD);
      const middle = box.top + box.height / 2;
      const bar = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ high) =>
        /** @type {const} */ ([x(from), middle - high / 2, x(to) - x(from), high]);
      const isAsked = counts.some(Boolean);
      pen.fillStyle = pen.ink("line");
      pen.fillRect(...bar(facts.low, facts.high, isAsked ? 6 : 1));
      if (!isAsked) return;
      pen.fillStyle = pen.strokeStyle = pen.ink("accent");
      pen.lineWidth = 1;
      pen.globalAlpha = isHollow ? 1 : 0.5;
      if (isHollow) pen.strokeRect(...bar(lo, hi, 6));
      else pen.fillRect(...bar(lo, hi, 6));
      pen.globalAlpha = 1;
      pen.fillStyle = pen.ink("ink");
      pen.fillRect(x(mean) - 1, middle - 7, 2, 14);
    },
    describe([row, column]) {
      const { question, index, ...all } = rows[row];
      const model = facts.names[column];
      const { counts, mean, lo, hi } = posteriorOf(view, facts, model, index);
      const own = counts.some(Boolean) ? `, posterior ${score(facts, mean)}, ${interval(facts, lo, hi)}` : "";
      const every = `all models ${score(facts, all.mean, 0)}, ${score(facts, all.spread, 0)} apart`;
      return `${plain(question.id, 60)}, ${plain(model, 60)}: ${countsText(view, counts)}${own} (${every})`;
    },
    choose: ([row, column]) => (ui.lane = [rows[row].index, facts.names[column]]),
    open: ([row, column]) => state.openQuestion(rows[row].index, facts.names[column]),
  };
}
