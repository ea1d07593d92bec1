// The run under other rubrics: the rank of every model, and what could not be worked out.

import { h } from "./dom.js";
import { nothing, region, table } from "./parts.js";
import { name, number, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const rubrics = {
  id: "rubrics",
  title: "Under other rubrics",
  render({ view }) {
    const found = view.rescored;
    if (!found)
      return nothing(
        `adaptive-eval rescore ${plain(view.place)}, and the report of a run that is over, show it under other rubrics.`,
      );
    const models = found.rubrics[0].models.map((model) => name(model.name));
    const caption = "Rank of each model under each rubric, with its tier in brackets";
    return [
      h(
        "p",
        { class: "quiet" },
        `${plural(found.trials, "trial")} that the scores are of, put into categories anew by what is stored of each. `,
        "A rubric that was chosen because of what it shows here promises nothing.",
      ),
      region(
        caption,
        "",
        table({
          caption,
          head: ["Rubric", ...models, "Kendall’s tau-b"],
          rows: found.rubrics.map((one) => [plain(one.name), ...one.models.map(place), number(one.tau_b)]),
        }),
      ),
      h(
        "ul",
        null,
        [...found.rubrics.flatMap(notes), ...found.unavailable.map((one) => `${one.name}: ${one.why}.`)].map((text) =>
          h("li", null, plain(text, 500)),
        ),
      ),
    ];
  },
};

/** @param {RescoredModel} model */
function place(model) {
  return model.rank === null ? "–" : `${model.rank} (${model.tier})`;
}

/** @param {RescoredRubric} one @returns {string[]} */
function notes(one) {
  const said = [];
  if (one.fitted.length) said.push(`${one.name}: thresholds fitted on these trials (${one.fitted.join(", ")}).`);
  for (const [signal, value] of Object.entries(one.assumed))
    said.push(`${one.name}: no trial has ${signal}; it is taken to be ${value}.`);
  const lacking = one.models.reduce((sum, model) => sum + model.left_out, 0);
  if (lacking) said.push(`${one.name}: ${plural(lacking, "trial")} left out for lack of a signal.`);
  return said;
}
