// Sections that are drawn as they were sent, in texts and tables.

import { h } from "./dom.js";
import { blocks, factList, note, region } from "./parts.js";
import { plain, visible } from "./text.js";
/** @import { Section } from "./parts.js" */

/** Columns that few readers need, scores on parts of the questions, and costs by model. @type {Section} */
export const details = {
  id: "details",
  title: "Details of the scores",
  isThere: ({ view }) => view.results !== null,
  render: ({ view }) => blocks(view, "details"),
};

/** The run compared with labels that people have given. @type {Section} */
export const labels = {
  id: "labels",
  title: "Labels",
  isThere: ({ view }) => Boolean(view.blocks.labels?.length),
  render: ({ view }) => blocks(view, "labels"),
};

/** @type {Section} */
export const traffic = {
  id: "traffic",
  title: "Answers, requests, events",
  render: ({ view }) => blocks(view, "traffic"),
};

/** How answers were sampled and graded, and the configuration. @type {Section} */
export const recipe = {
  id: "repeat",
  title: "How to repeat this run",
  render({ view }) {
    const run = view.results?.run;
    return [
      factList([
        ["adaptive-eval", run ? plain(run.version) : null],
        ["seeds of trials", plain(view.words.seeds, 400)],
        ["estimates", plain(view.words.prior, 400)],
        ["thresholds", view.thresholds ? plain(view.thresholds, 2000) : null],
      ]),
      blocks(view, "recipe"),
      h("h3", null, "Configuration"),
      note("Settings at their defaults are not shown; keys and secrets never are."),
      region("Configuration", "tall", h("pre", { class: "yaml" }, visible(view.published))),
    ];
  },
};
