// How the order came about: the rank of every model over the looks.

import { fitted, line, lineColour, plot, roomFor } from "./chart.js";
import { s } from "./dom.js";
import { column, data } from "./parts.js";
import { plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

/** @typedef {[place: number, order: readonly string[]][]} Orders of the models, and where each stands on the line */

const ROW = 22;
const LOOKS_IN_TABLE = 40;

/** @type {Section} */
export const trajectories = {
  id: "trajectories",
  title: "Rank over looks",
  isThere: ({ view }) => view.looks.length > 0,
  render({ view: { looks }, facts: { names }, width }) {
    /** @type {Orders} */
    const orders = looks.map(({ look, order }) => [look, order]);
    orders.push([looks[looks.length - 1].look, names]); // after answers asked ahead
    const shown = looks.slice(-LOOKS_IN_TABLE);
    const columns = [
      column("Look", (/** @type {LookView} */ { look }) => look),
      ...names.map((name) =>
        column(plain(name, 24), (/** @type {LookView} */ { order }) => order.indexOf(name) + 1 || "–"),
      ),
    ];
    return [
      rankChart(names, orders, "look", Math.max(width, 280)),
      data(`Ranks at the last ${plural(shown.length, "look")}`, () => ({ columns, rows: shown }), "data-ranks"),
    ];
  },
};

/**
 * Ranks as lines that end at the names, which are in the order of now.
 * @param {string[]} names @param {Orders} orders @param {string} unit @param {number} width
 */
export function rankChart(names, orders, unit, width) {
  const room = roomFor(names, 0.32 * width);
  /** @type {Map<string, [across: number, rank: number][]>} */
  const ranks = new Map(names.map((name) => [name, []]));
  for (const [place, order] of orders) order.forEach((name, index) => ranks.get(name)?.push([place, index + 1]));
  const [first, last] = [orders[0][0], orders[orders.length - 1][0]];
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
