// The run under other rubrics: the rank of every model, and what could not be worked out.

import { h } from "./dom.js";
import { region, table } from "./parts.js";
import { listed, name, number, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const rubrics = {
  id: "rubrics",
  title: "Under other rubrics",
  isThere: ({ view }) => view.rescored !== null && view.rescored.rubrics.length > 1,
  render({ view }) {
    const found = view.rescored;
    if (!found) return [];
    const models = found.rubrics[0].models.map((model) => name(model.name));
    const caption = "Rank of each model under each rubric, with its tier in brackets";
    return [
      h("p", { class: "quiet" }, [
        `${plural(found.trials, "trial")} that the scores are of, put into categories anew by what is stored of each. `,
        "A rubric that was chosen because of what it shows here promises nothing.",
      ]),
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
        notes(found).map((text) => h("li", null, plain(text, 500))),
      ),
    ];
  },
};

/** @param {RescoredModel} model */
function place(model) {
  return model.rank === null ? "–" : `${model.rank} (${model.tier})`;
}

/** What holds for several rubrics is said once. @param {Rescoring} found @returns {string[]} */
function notes({ rubrics, unavailable }) {
  /** @type {Map<string, string[]>} */
  const said = new Map();
  const say = (/** @type {string} */ what, /** @type {string} */ rubric) =>
    said.set(what, [...(said.get(what) ?? []), rubric]);
  for (const one of rubrics) {
    if (one.fitted.length) say(`thresholds fitted on these trials (${one.fitted.join(", ")})`, one.name);
    for (const [signal, value] of Object.entries(one.assumed))
      say(`no trial has ${signal}; it is taken to be ${value}`, one.name);
    const lacking = one.models.reduce((sum, model) => sum + model.left_out, 0);
    if (lacking) say(`${plural(lacking, "trial")} left out for lack of a signal`, one.name);
  }
  for (const one of unavailable) say(`not worked out: ${one.why}`, one.name);
  return [...said].map(([what, names]) => `${listed(names)}: ${what}.`);
}
