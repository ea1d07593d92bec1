// The run compared with labels that people have given: the grader's errors, and scores corrected for them.

import { h } from "./dom.js";
import { WIDTH_95, interval, score } from "./facts.js";
import { column, sumOf, table } from "./parts.js";
import { count, name, number, plain, plural } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const labels = {
  id: "labels",
  title: "Labels",
  isThere: ({ view }) => view.orders !== null || Boolean(view.results?.labelled),
  render({ view, facts }) {
    const run = view.results?.labelled ?? null;
    const orders = view.orders === null ? null : h("p", { class: "quiet" }, plain(view.orders, 500));
    if (!run) return [orders];
    if (run.problem !== null)
      return [orders, h("p", null, `There are labels that cannot be used: ${plain(run.problem, 500)}`)];
    const alone = "Scores here are of this run's own answers: outcomes that were known before (R0) have no labels.";
    return [
      orders,
      h("p", { class: "quiet" }, summary(run)),
      run.alone ? h("p", { class: "quiet" }, alone) : null,
      run.differ ? h("p", null, h("b", null, "The grader errs differently about the models.")) : null,
      corrected(facts, run),
      confusions(run),
    ];
  },
};

/** @param {LabelledRun} run */
function summary({ models, grader }) {
  const wrong = sumOf(models, disagreements);
  return (
    `Of ${plural(
      sumOf(models, (model) => model.labels),
      "label",
    )} ${count(wrong)} ` +
    `${wrong === 1 ? "differs" : "differ"} from the grade (${plain(grader)}). Corrected scores estimate ` +
    "what labels of all answers would have given; their intervals have the sampling error and that of the " +
    "correction. Ranking and verdicts go by corrected scores."
  );
}

/** @param {LabelledModel} model */
function disagreements({ labels, confusion }) {
  return labels - confusion.reduce((sum, row, level) => sum + (row[level] ?? 0), 0);
}

/** @param {Facts} facts @param {LabelledRun} run */
function corrected(facts, { models }) {
  const bounds = (/** @type {LabelledModel} */ { corrected, corrected_sigma: sigma }) =>
    corrected === null || sigma === null
      ? number(null)
      : interval(facts, corrected - WIDTH_95 * sigma, corrected + WIDTH_95 * sigma);
  return table({
    caption: "Scores of each model, as graded and corrected by the labels",
    rows: models,
    columns: [
      ["Model", (model) => name(model.name)],
      ["Labels", (model) => count(model.labels)],
      ["Disagree", (model) => count(disagreements(model))],
      ["As graded", (model) => score(facts, model.score)],
      ["Corrected", (model) => score(facts, model.corrected)],
      ["95% interval", bounds],
    ],
  });
}

/** @param {LabelledRun} run */
function confusions({ models, levels }) {
  const rows = models.flatMap(({ name, confusion }) =>
    confusion.map((counts, level) => ({ name, level: levels[level] ?? "", counts })),
  );
  return table({
    caption: "Grades (columns) by label (rows)",
    shown: true,
    texts: 2,
    rows: rows.filter(({ counts }) => counts.some((answers) => answers > 0)),
    columns: [
      ["Model", (row) => name(row.name)],
      ["Label", (row) => plain(row.level)],
      ...[...levels, "nothing"].map((level, index) =>
        column(plain(level), (/** @type {{counts: number[]}} */ { counts }) => count(counts[index])),
      ),
    ],
  });
}
