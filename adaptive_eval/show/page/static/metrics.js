// Metrics of several draws, which the configuration asks a report for.

import { h } from "./dom.js";
import { columnTable } from "./groups.js";

/** A row for each model, a column for each metric. @param {Results} results */
export function metricsTable({ metrics, models }) {
  if (!metrics.length) return null;
  return [
    columnTable(
      "Metrics of several draws, with 95% intervals",
      models,
      metrics.map((row) => ({ ...row, column: row.metric })),
    ),
    h(
      "p",
      { class: "note" },
      "Each is the mean over all draws of so many trials of a question; nothing is decided by them.",
    ),
  ];
}
