// The run under other rubrics: the rank of every model, and what could not be worked out.

import { h } from "./dom.js";
import { column, sumOf, table } from "./parts.js";
import { listed, name, number, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const rubrics = {
  id: "rubrics",
  title: "Under other rubrics",
  isThere: ({ view }) => view.rescored !== null && view.rescored.rubrics.length > 1,
  render({ view }) {
    if (!view.rescored) return [];
    const { rubrics, trials } = view.rescored;
    const ranks = rubrics[0].models.map((model, index) =>
      column(name(model.name), (/** @type {typeof rubrics[0]} */ row) => rankOf(row.models[index])),
    );
    const notes = notesOf(view.rescored).map((text) => h("li", null, plain(text, 500)));
    return [
      h("p", { class: "quiet" }, [
        `The ${plural(trials, "scored trial")}, categorized again by other rubrics. `,
        "Choosing a rubric after seeing these results voids the error rates.",
      ]),
      table({
        caption: "Rank of each model under each rubric, with its tier in brackets",
        rows: rubrics,
        columns: [["Rubric", (row) => plain(row.name)], ...ranks, ["Kendall’s tau-b", (row) => number(row.tau_b)]],
      }),
      h("ul", null, notes),
    ];
  },
};

/** @param {RescoredModel} model */
function rankOf({ rank, tier }) {
  return rank === null ? "–" : `${rank} (${tier})`;
}

/** Remarks, each once with all rubrics that it holds for. @param {Rescoring} rescored @returns {string[]} */
function notesOf({ rubrics, unavailable }) {
  /** @type {[note: string, rubric: string][]} */
  const notes = rubrics.flatMap(({ name, fitted, assumed, models }) => {
    const leftOut = sumOf(models, (model) => model.left_out);
    return [
      fitted.length ? `thresholds fitted on these trials (${fitted.join(", ")})` : "",
      ...Object.entries(assumed).map(([signal, value]) => `no trial has ${signal}; ${value} is used`),
      leftOut ? `${plural(leftOut, "trial")} left out for lack of a signal` : "",
    ].map((note) => /** @type {[string, string]} */ ([note, name]));
  });
  for (const { name, why } of unavailable) notes.push([`not computed: ${why}`, name]);
  const texts = new Set(notes.map(([note]) => note).filter(Boolean));
  const rubricsOf = (/** @type {string} */ text) => notes.filter(([note]) => note === text).map(([, rubric]) => rubric);
  return [...texts].map((text) => `${listed(rubricsOf(text))}: ${text}.`);
}
