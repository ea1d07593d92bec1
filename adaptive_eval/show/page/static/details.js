// Sections that are drawn as they were sent, in texts and tables.

import { blocks } from "./parts.js";
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
