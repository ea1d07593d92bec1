// Scores on parts of the questions: by benchmark, and by fields of their metadata.

import { h } from "./dom.js";
import { region, table } from "./parts.js";
import { name, percent } from "./text.js";

/** @typedef {{ column: string, model: string, value: number | null, lo: number | null, hi: number | null,
 *   gate?: string | null }} Cell */

/** A table for each way to tell questions apart, with a row for each model. @param {Results} results */
export function groupTables({ groups, models }) {
  const ways = [...new Set(groups.map((row) => row.by))];
  return ways.map((by) => {
    const own = groups.filter((row) => row.by === by);
    return [
      columnTable(
        `Scores by ${by}, with 95% intervals`,
        models,
        own.map((row) => ({ ...row, column: row.group, value: row.score })),
      ),
      own.some((row) => row.gate) ? null : h("p", { class: "note" }, "Nothing is decided by them alone."),
    ];
  });
}

/**
 * Values with their intervals: a row for each model, a column for each name.
 * @param {string} caption @param {ModelRow[]} models @param {Cell[]} cells
 */
export function columnTable(caption, models, cells) {
  const columns = [...new Set(cells.map((one) => one.column))];
  const found = new Map(cells.map((one) => [`${one.column} ${one.model}`, one]));
  return region(
    caption,
    "",
    table({
      caption,
      shown: true,
      head: ["Model", ...columns],
      rows: models.map((model) => [
        name(model.name),
        ...columns.map((column) => text(found.get(`${column} ${model.name}`))),
      ]),
    }),
  );
}

/** @param {Cell | undefined} cell */
function text(cell) {
  if (!cell || cell.value === null) return "–";
  const gate = cell.gate ? ` ${cell.gate}` : "";
  return `${percent(cell.value, 1)} (${percent(cell.lo, 1)} .. ${percent(cell.hi, 1)})${gate}`;
}
