// How the order came about: the rank of every model over the looks.

import { fitted, line, lineColour, plot, roomFor } from "./chart.js";
import { s } from "./dom.js";
import { data } from "./parts.js";
import { plain, plural } from "./text.js";
/** @import { Column, Section } from "./parts.js" */

/** @typedef {Map<string, [across: number, rank: number][]>} Ranks of each model */

const ROW = 22;
const LOOKS_IN_TABLE = 40;

/** @type {Section} */
export const trajectories = {
  id: "trajectories",
  title: "Rank over looks",
  isThere: ({ view }) => view.looks.length > 0,
  render({ view: { looks }, facts: { names }, width }) {
    /** @type {Ranks} */
    const ranks = new Map(names.map((name) => [name, []]));
    for (const { look, order } of looks) order.forEach((name, index) => ranks.get(name)?.push([look, index + 1]));
    const last = looks[looks.length - 1].look;
    names.forEach((name, index) => ranks.get(name)?.push([last, index + 1])); // after answers asked ahead
    const shown = looks.slice(-LOOKS_IN_TABLE);
    return [
      rankChart(names, ranks, "look", Math.max(width, 280)),
      data(`Ranks at the last ${plural(shown.length, "look")}`, () => ({
        columns: [["Look", ({ look }) => look], ...names.map((name) => rankColumn(name))],
        rows: shown,
      })),
    ];
  },
};

/** A column of the table. @param {string} model @returns {Column<LookView>} */
const rankColumn = (model) => [plain(model, 24), ({ order }) => order.indexOf(model) + 1 || "–"];

/**
 * Ranks as lines that end at the names, which are in the order of now.
 * @param {string[]} names @param {Ranks} ranks @param {string} unit @param {number} width
 */
export function rankChart(names, ranks, unit, width) {
  const room = roomFor(names, 0.32 * width);
  const across = [...ranks.values()].flatMap((points) => points.map(([place]) => place));
  const [first, last] = [Math.min(...across), Math.max(...across)];
  return plot(
    {
      label: `Ranks of ${plural(names.length, "model")} from ${unit} ${first} to ${last}`,
      width,
      height: 54 + ROW * (names.length + 1),
      right: room + 16,
      across: [first, last],
      unit,
      up: [names.length + 0.5, 0.5],
      levels: names.map((_, index) => index + 1),
      format: String,
    },
    ({ x, y, ...plane }) =>
      names.map((name, index) => {
        const [rank, colour] = [index + 1, lineColour(index, names.length)];
        const path = line(corners(ranks.get(name) ?? []), { x, y, ...plane });
        return s("g", { class: "trajectory", "data-key": name }, [
          s("title", null, `${plain(name)}: rank ${rank} now`),
          s("path", { class: "casing", d: path }),
          s("path", { class: "stroke", style: { stroke: colour }, d: path }),
          s("circle", { style: { fill: colour }, cx: x(last), cy: y(rank), r: 4 }),
          s("text", { x: plane.right + 10, y: y(rank), dy: "0.32em" }, fitted(name, room)),
        ]);
      }),
  );
}

/** The corners alone: nothing needs to be drawn where nothing changes. @param {[number, number][]} points */
function corners(points) {
  const isCorner = (/** @type {number} */ index) =>
    points[index - 1]?.[1] !== points[index][1] || points[index + 1]?.[1] !== points[index][1];
  return points.filter((_, index) => isCorner(index));
}
