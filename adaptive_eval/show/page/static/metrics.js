// Metrics of several draws, which the configuration asks a report for.

import { h } from "./dom.js";
import { region, table } from "./parts.js";
import { name, percent } from "./text.js";
/** @import { MetricRow, Results } from "./sent.js" */

/** A row for each model, a column for each metric. @param {Results} results */
export function metricsTable({ metrics, models }) {
  if (!metrics.length) return null;
  const names = [...new Set(metrics.map((row) => row.metric))];
  const found = new Map(metrics.map((row) => [`${row.metric} ${row.model}`, row]));
  const caption = "Metrics of several draws, with 95% intervals";
  return [
    region(
      caption,
      "",
      table({
        caption,
        shown: true,
        head: ["Model", ...names],
        rows: models.map((model) => [name(model.name), ...names.map((one) => cell(found.get(`${one} ${model.name}`)))]),
      }),
    ),
    h(
      "p",
      { class: "note" },
      "Each is the mean over all draws of so many trials of a question; nothing is decided by them.",
    ),
  ];
}

/** @param {MetricRow | undefined} row */
function cell(row) {
  if (!row || row.value === null) return "–";
  return `${percent(row.value, 1)} (${percent(row.lo, 1)} .. ${percent(row.hi, 1)})`;
}
