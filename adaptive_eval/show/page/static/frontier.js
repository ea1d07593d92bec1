// Score against cost: for the choice of the cheapest model that will do.

import { fitted, plot, roomFor } from "./chart.js";
import { s } from "./dom.js";
import { clipped, score } from "./facts.js";
import { blocks } from "./parts.js";
import { plain } from "./text.js";
/** @import { Section, State } from "./parts.js" */

/** @typedef {{row: FrontierRow, model: ModelRow, usd: number, low: number, high: number}} Point */

const SIDES = 1.96;

/** @type {Section} */
export const frontier = {
  id: "frontier",
  title: "Score against cost",
  shown: true,
  isThere: ({ view }) => (view.results?.frontier ?? []).length > 0,
  render(state) {
    const points = pointsOf(state);
    return [points.length ? chart(points, state) : null, blocks(state.view, "frontier")];
  },
};

/** The models with a score and a cost. @param {State} state @returns {Point[]} */
function pointsOf({ view: { results } }) {
  return (results?.frontier ?? []).flatMap((row) => {
    const model = results?.models.find((each) => each.name === row.model);
    if (!model || model.score === null || !row.usd) return [];
    const half = SIDES * (row.usd_sigma ?? 0);
    return [{ row, model, usd: row.usd, low: Math.max(row.usd - half, 0.5 * row.usd), high: row.usd + half }];
  });
}

/** @param {Point[]} points @param {State} state */
function chart(points, { facts, width }) {
  const [least, most] = [Math.min(...points.map(({ low }) => low)), Math.max(...points.map(({ high }) => high))];
  const [from, to] = [Math.log10(least) - 0.1, Math.log10(most) + 0.1];
  const powers = Array.from({ length: Math.ceil(to) - Math.floor(from) + 1 }, (_, at) => Math.floor(from) + at);
  const marks = powers.flatMap((power) => [1, 2, 5].map((digit) => power + Math.log10(digit)));
  const ends = points.flatMap(({ model }) => [model.lo ?? 0, model.hi ?? 0].map((end) => clipped(facts, end)));
  const room = roomFor(
    points.map(({ row }) => row.model),
    150,
  );
  const frame = { width: Math.max(Math.min(width || 800, 900), 320), height: 320, right: room + 20 };
  const label = "Scores of the models against the cost of an answer";
  const axes = { across: /** @type {[number, number]} */ ([from, to]), unit: "USD an answer" };
  /** @type {[number, number]} */
  const up = [Math.min(...ends), Math.max(...ends)];
  const format = (/** @type {number} */ value) => score(facts, value);
  const mark = (/** @type {number} */ value) => `$${Number((10 ** value).toPrecision(1))}`;
  const inside = marks.filter((value) => value >= from && value <= to);
  return plot({ label, ...frame, ...axes, up, format, marks: inside, mark }, ({ x, y }) =>
    points.map(({ row, model, usd, low, high }) => {
      const [across, above] = [x(Math.log10(usd)), y(model.score ?? 0)];
      const bar = { class: "whisker", y1: above, y2: above };
      const says = `${plain(row.model)}: ${score(facts, model.score)}, $${usd.toPrecision(3)} an answer`;
      return s("g", { class: `priced ${row.part}`, "data-key": row.model }, [
        s("title", null, says),
        s("line", { ...bar, x1: x(Math.log10(low)), x2: x(Math.log10(high)) }),
        s("line", { ...bar, x1: across, x2: across, y1: y(model.lo ?? 0), y2: y(model.hi ?? 0) }),
        s("circle", { class: "dot", cx: across, cy: above, r: row.part === "chosen" ? 7 : 4 }),
        s("text", { x: across + 10, y: above - 8 }, fitted(row.model, room)),
      ]);
    }),
  );
}
