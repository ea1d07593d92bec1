// How the order came about: the rank of every model over the looks.

import { bottomTicks, figure, fitted, line, lineColour, linear, roomFor, ticks } from "./chart.js";
import { s } from "./dom.js";
import { data } from "./parts.js";
import { count, plain, plural } from "./text.js";
/** @import { Scale } from "./chart.js" */
/** @import { Section } from "./parts.js" */

const ROW = 22;

/** @type {Section} */
export const trajectories = {
  id: "trajectories",
  title: "Rank over looks",
  isThere: ({ view }) => view.looks.length > 0,
  render(state) {
    const { view, facts } = state;
    const looks = view.looks;
    const names = facts.names;
    const width = Math.max(state.width, 280);
    const label = roomFor(names, 0.32 * width);
    const frame = { left: 34, right: label + 16, top: 8, bottom: 40 };
    const height = frame.top + frame.bottom + ROW * names.length;
    const first = looks[0].look;
    const { look: last } = looks[looks.length - 1];
    const x = linear(first, Math.max(last, first + 1), frame.left, width - frame.right);
    const y = linear(1, 2, frame.top + ROW / 2, frame.top + 1.5 * ROW);
    const ranks = ranksOf(looks);
    for (const [at, name] of names.entries()) ranks.get(name)?.push([last, at + 1]); // after answers asked ahead
    const colour = (/** @type {number} */ at) => lineColour(names.length < 2 ? 0 : at / (names.length - 1));
    return [
      figure(
        {
          label: `Ranks of ${plural(names.length, "model")} over ${plural(looks.length, "look")}`,
          width,
          height,
          className: "wide trajectories",
        },
        [
          names.map((_, at) =>
            s("text", { class: "tick", x: frame.left - 12, y: y(at + 1), dy: "0.32em", "text-anchor": "end" }, at + 1),
          ),
          bottomTicks(
            ticks(first, last, (width - frame.left - frame.right) / 70, true),
            x,
            height - frame.bottom,
            String,
            "look",
            width - frame.right,
          ),
          names.map((name, at) =>
            trajectory(name, stairs(ranks.get(name) ?? []), {
              x,
              y,
              colour: colour(at),
              rank: at + 1,
              end: width - frame.right,
              room: label,
            }),
          ),
        ],
      ),
      ranksBehind(looks, ranks, names),
    ];
  },
};

/** @param {LookView[]} looks @returns {Map<string, [number, number][]>} */
function ranksOf(looks) {
  const ranks = new Map();
  for (const look of looks)
    for (const [at, name] of look.order.entries()) ranks.set(name, [...(ranks.get(name) ?? []), [look.look, at + 1]]);
  return ranks;
}

/** The corners alone: where nothing changes there is nothing to draw. @param {[number, number][]} points */
function stairs(points) {
  return points.filter(
    (point, at) =>
      at === 0 || at === points.length - 1 || points[at - 1][1] !== point[1] || points[at + 1][1] !== point[1],
  );
}

/**
 * @param {string} name
 * @param {[number, number][]} points
 * @param {{x: Scale, y: Scale, colour: string, rank: number, end: number, room: number}} given
 */
function trajectory(name, points, { x, y, colour, rank, end, room }) {
  return s(
    "g",
    {
      class: "trajectory",
      "data-key": name,
    },
    [
      s("title", null, `${plain(name)}: rank ${rank} now`),
      s("path", { class: "casing", d: line(points, x, y) }),
      s("path", { class: "stroke", style: { stroke: colour }, d: line(points, x, y) }),
      s("circle", { style: { fill: colour }, cx: end, cy: y(rank), r: 4 }),
      s("text", { x: end + 10, y: y(rank), dy: "0.32em" }, fitted(name, room)),
    ],
  );
}

/** @param {LookView[]} looks @param {Map<string, [number, number][]>} ranks @param {string[]} names */
function ranksBehind(looks, ranks, names) {
  const shown = looks.filter((_, at) => at % Math.ceil(looks.length / 40) === 0 || at === looks.length - 1);
  const at = (/** @type {string} */ name, /** @type {number} */ look) =>
    ranks.get(name)?.find(([number]) => number === look)?.[1] ?? "–";
  return data("Rank of each model", () => ({
    head: ["Look", "Trials", ...names.map((name) => plain(name, 24))],
    rows: shown.map((look) => [
      look.look,
      count(look.trials.reduce((sum, one) => sum + one, 0)),
      ...names.map((name) => at(name, look.look)),
    ]),
  }));
}
