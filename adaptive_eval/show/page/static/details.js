// Details of the scores: columns that few readers need, scores on parts of the questions, and costs by model.

import { blocks } from "./parts.js";
/** @import { Section } from "./parts.js" */

/** @type {Section} */
export const details = {
  id: "details",
  title: "Details of the scores",
  isThere: ({ view }) => view.results !== null,
  render: ({ view }) => blocks(view, "details"),
};

/** The run compared with labels that people have given: the grader's errors, and scores corrected for them. */
/** @type {Section} */
export const labels = {
  id: "labels",
  title: "Labels",
  isThere: ({ view }) => Boolean(view.blocks.labels?.length),
  render: ({ view }) => blocks(view, "labels"),
};
