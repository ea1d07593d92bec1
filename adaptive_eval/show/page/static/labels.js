// The run beside labels that people have given: how often the grader errs, and scores corrected for it.

import { h } from "./dom.js";
import { interval, score } from "./facts.js";
import { region, table } from "./parts.js";
import { count, name, number, plain, plural } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section } from "./parts.js" */

const NORMAL = 1.959964;

/** @type {Section} */
export const labels = {
  id: "labels",
  title: "Labels",
  isThere: ({ view }) => view.orders !== null || Boolean(view.results?.labelled),
  render({ view, facts }) {
    const found = view.results?.labelled ?? null;
    const orders = view.orders === null ? [] : [h("p", { class: "quiet" }, plain(view.orders, 500))];
    if (!found) return orders;
    if (found.problem !== null)
      return [...orders, h("p", null, `There are labels that cannot be used: ${plain(found.problem, 500)}`)];
    return [...orders, ...said(found), corrected(facts, found), confusions(found)];
  },
};

/** @param {LabelledRun} found */
function said(found) {
  const total = found.models.reduce((sum, one) => sum + one.labels, 0);
  const wrong = found.models.reduce((sum, one) => sum + disagreeing(one), 0);
  const told = h("p", { class: "quiet" }, [
    `Of ${plural(total, "label")} ${count(wrong)} ${wrong === 1 ? "differs" : "differ"} from what the grader `,
    `(${plain(found.grader)}) said. Corrected scores estimate what labels of all answers would have given; their `,
    "intervals have the sampling error and that of the correction. Ranking and verdicts go by corrected scores.",
  ]);
  const alone = "Scores here are of this run's own answers: outcomes that were known before (R0) have no labels.";
  const warned = "The grader errs differently about the models.";
  return [
    told,
    found.alone ? h("p", { class: "quiet" }, alone) : null,
    found.differ ? h("p", null, h("b", null, warned)) : null,
  ];
}

/** @param {LabelledModel} one */
function disagreeing(one) {
  return one.labels - one.confusion.reduce((sum, row, at) => sum + (row[at] ?? 0), 0);
}

/** @param {Facts} facts @param {LabelledRun} found */
function corrected(facts, found) {
  const caption = "Scores of each model, as graded and corrected by the labels";
  return region(
    caption,
    "",
    table({
      caption,
      head: ["Model", "Labels", "Disagree", "As graded", "Corrected", "95% interval"],
      rows: found.models.map((one) => [
        name(one.name),
        count(one.labels),
        count(disagreeing(one)),
        score(facts, one.score),
        score(facts, one.corrected),
        between(facts, one),
      ]),
    }),
  );
}

/** @param {Facts} facts @param {LabelledModel} one */
function between(facts, one) {
  if (one.corrected === null || one.corrected_sigma === null) return number(null);
  const half = NORMAL * one.corrected_sigma;
  return interval(facts, one.corrected - half, one.corrected + half);
}

/** @param {LabelledRun} found */
function confusions(found) {
  const caption = "What the grader said (columns) of answers with each label (rows)";
  const rows = found.models.flatMap((one) =>
    one.confusion.flatMap((row, at) =>
      row.some((number_of) => number_of > 0)
        ? [[name(one.name), plain(found.levels[at] ?? ""), ...row.map((number_of) => count(number_of))]]
        : [],
    ),
  );
  const head = ["Model", "Label", ...found.levels.map((level) => plain(level)), "nothing"];
  return region(caption, "", table({ caption, shown: true, head, rows, texts: 2 }));
}
