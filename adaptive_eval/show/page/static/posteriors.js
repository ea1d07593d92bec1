// What is known of every question: posterior mean and interval of every model.

import { linear } from "./chart.js";
import { h, on } from "./dom.js";
import { countsText, interval, notJudged, posteriorOf, score } from "./facts.js";
import { grid, namesRoom, paint, wire } from "./grid.js";
import { filterField, filtered } from "./parts.js";
import { term } from "./terms.js";
import { count, plain, plural } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Grid } from "./grid.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {{index: number, question: QuestionView, mean: number, spread: number}} Row */

const PAGE = 200;
const PAD = 5;

/** @type {Section} */
export const posteriors = {
  id: "questions",
  title: "Questions",
  render(state) {
    const { view, facts, ui } = state;
    const rows = rowsOf(state);
    const left = rows.length - (ui.questions ?? PAGE);
    return [
      h("p", null, [
        "The ",
        term("bayes", "posterior"),
        " of each model's score on each question: the bar is the 95% interval, the tick the mean, ",
        `from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}. `,
        "Choose one to see everything about the question.",
      ]),
      fresh(view, facts),
      filterField({
        placeholder: "id, text or cluster",
        shown: rows.length,
        all: view.questions.length,
        unit: "question",
        more: orders(facts, ui.order),
      }),
      rows.length ? grid("Posterior of each model on each question. Enter opens the question.", "chart") : null,
      left > 0
        ? h(
            "button",
            { type: "button", class: "more", "data-next": "" },
            `Show ${count(Math.min(PAGE, left))} more questions`,
          )
        : null,
    ];
  },
  painted: (root, state) => paint(root, gridOf(state)),
  wire(root, state) {
    wire(root, state, gridOf);
    on(root, "input", "[data-filter]", (/** @type {HTMLInputElement} */ input) => {
      state.ui.filter = input.value;
      state.refresh("questions");
    });
    on(root, "change", "[data-order]", (/** @type {HTMLSelectElement} */ select) => {
      state.ui.order = select.value;
      state.refresh("questions");
    });
    on(root, "click", "[data-next]", () => {
      state.ui.questions = (state.ui.questions ?? PAGE) + PAGE;
      state.refresh("questions");
    });
  },
};

/** By what questions can be ordered. @param {Facts} facts @param {string | undefined} chosen */
function orders(facts, chosen) {
  const option = (/** @type {string} */ value, /** @type {string} */ text) =>
    h("option", { value, selected: value === (chosen ?? "") }, text);
  return h("label", null, [
    "Order ",
    h("select", { "data-order": "" }, [
      option("", "as they were asked"),
      option("mean", "hardest first"),
      option("spread", "models furthest apart first"),
      facts.names.map((model) => option(`model:${model}`, `best of ${plain(model, 40)} first`)),
    ]),
  ]);
}

/** What no look has used, though it is shown here. @param {RunView} view @param {Facts} facts */
function fresh(view, facts) {
  const waiting = facts.names
    .map((model) => ({ model, many: notJudged(view, facts, model) }))
    .filter(({ many }) => many > 0);
  const total = waiting.reduce((sum, { many }) => sum + many, 0);
  if (!total) return null;
  const shown = waiting.slice(0, 6).map(({ model, many }) => `${plain(model, 40)} ${count(many)}`);
  const more = waiting.length > shown.length ? ` and ${waiting.length - shown.length} more` : "";
  const all = view.trials.flat().reduce((sum, one) => sum + one, 0);
  return h("p", { class: "fresh" }, [
    `All ${plural(all, "trial")} that are graded count here; `,
    term("trials", "no look has judged"),
    ` ${count(total)} of them${view.results?.run.status === "finished" ? "" : " yet"}`,
    view.looks.length || view.results ? ` (${shown.join(", ")}${more}).` : ": the bars are hollow.",
  ]);
}

/** The questions that the filter leaves, in the order that was chosen. @param {State} state @returns {Row[]} */
function rowsOf({ view, facts, ui }) {
  const rows = view.questions.map((question, index) => {
    const known = facts.names.map((model) => posteriorOf(view, facts, model, index));
    const asked = known.filter((one) => one.counts.some(Boolean));
    const means = (asked.length ? asked : known).map((one) => one.mean);
    const mean = means.reduce((sum, one) => sum + one, 0) / means.length;
    return { index, question, mean, spread: Math.max(...means) - Math.min(...means) };
  });
  const { order = "" } = ui;
  const model = order.slice("model:".length);
  const value = (/** @type {Row} */ row) => {
    if (order === "mean") return row.mean;
    if (order === "spread") return -row.spread;
    return facts.columnOf.has(model) ? -posteriorOf(view, facts, model, row.index).mean : 0;
  };
  const texts = (/** @type {Row} */ { question }) => [question.id, question.prompt, question.cluster ?? ""];
  return filtered(rows, ui.filter ?? "", texts).sort(
    (one, other) => value(one) - value(other) || one.index - other.index,
  );
}

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui, width, printing } = state;
  const rows = rowsOf(state).slice(0, ui.questions ?? PAGE);
  const names = rows.map(({ question }) => plain(question.id, 17));
  const left = namesRoom(names, 0.25 * width);
  const lane = Math.floor((width - left - 2) / Math.max(1, facts.names.length));
  const unjudged = !view.looks.length && !view.results;
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
    draw(pen, at, box) {
      const { counts, mean, lo, hi } = posteriorOf(view, facts, facts.names[at[1]], rows[at[0]].index);
      const x = linear(facts.low, facts.high, box.left + PAD, box.left + box.width - PAD);
      const middle = box.top + box.height / 2;
      const bar = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ high) =>
        /** @type {const} */ ([x(from), middle - high / 2, x(to) - x(from), high]);
      const asked = counts.some(Boolean);
      pen.fillStyle = pen.ink("line");
      pen.fillRect(...bar(facts.low, facts.high, asked ? 6 : 1));
      if (!asked) return;
      pen.fillStyle = pen.strokeStyle = pen.ink("accent");
      pen.lineWidth = 1;
      pen.globalAlpha = unjudged ? 1 : 0.5;
      if (unjudged) pen.strokeRect(...bar(lo, hi, 6));
      else pen.fillRect(...bar(lo, hi, 6));
      pen.globalAlpha = 1;
      pen.fillStyle = pen.ink("ink");
      pen.fillRect(x(mean) - 1, middle - 7, 2, 14);
    },
    tell(at) {
      const { question, index, ...all } = rows[at[0]];
      const model = facts.names[at[1]];
      const { counts, mean, lo, hi } = posteriorOf(view, facts, model, index);
      const known = counts.some(Boolean) ? `, posterior ${score(facts, mean)}, ${interval(facts, lo, hi)}` : "";
      const every = `all models ${score(facts, all.mean, 0)}, ${score(facts, all.spread, 0)} apart`;
      return `${plain(question.id, 60)}, ${plain(model, 60)}: ${countsText(view, counts)}${known} (${every})`;
    },
    choose: (at) => (ui.lane = [rows[at[0]].index, facts.names[at[1]]]),
    open: (at) => state.openQuestion(rows[at[0]].index, facts.names[at[1]]),
  };
}
