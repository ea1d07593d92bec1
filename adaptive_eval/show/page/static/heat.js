// Where the trials went: models by questions.

import { ramp } from "./chart.js";
import { h } from "./dom.js";
import { entry } from "./facts.js";
import { grid, namesRoom, onGrid } from "./grid.js";
import { data, sumOf } from "./parts.js";
import { count, number, plain, plural } from "./text.js";
/** @import { Grid } from "./grid.js" */
/** @import { Section, State } from "./parts.js" */

const SHADES = 6;

/** @type {Section} */
export const heat = {
  id: "trials",
  title: "Where the trials went",
  render(state) {
    const { view, facts } = state;
    const { bin } = layout(state);
    const size = `${plural(facts.names.length, "model")} and ${plural(view.questions.length, "question")}`;
    const binned = bin > 1 ? `; each column is ${bin} questions, shown by their mean` : "";
    const total = plural(sumOf(view.trials.flat(), Number), "trial");
    const trialsOf = (/** @type {string} */ name) => view.trials[entry(facts.columnOf, name)];
    const mean = (/** @type {number[]} */ trials) => sumOf(trials, Number) / trials.length;
    return [
      h("p", null, `${total} over ${size}${binned}. Models in the order of the ranking.`),
      grid("Trials of each model on each question. Enter opens the question.", "heat map"),
      scale(mostTrials(view)),
      data("Trials per question", () => ({
        rows: facts.names,
        columns: [
          ["Model", (name) => plain(name, 60)],
          ["Trials", (name) => count(sumOf(trialsOf(name), Number))],
          ["Least", (name) => count(Math.min(...trialsOf(name)))],
          ["Mean", (name) => mean(trialsOf(name)).toFixed(1)],
          ["Most", (name) => count(Math.max(...trialsOf(name)))],
        ],
      })),
    ];
  },
  ...onGrid(gridOf),
};

/** Several questions share a column where there are more of them than room. @param {State} state */
function layout({ view, facts, width }) {
  const left = namesRoom(facts.names, width < 560 ? 84 : 210);
  const questions = Math.max(1, view.questions.length);
  const room = Math.max(120, width - left - 2);
  const bin = Math.ceil(questions / Math.max(1, Math.floor(room / 2)));
  const columns = Math.ceil(questions / bin);
  return { left, bin, columns, width: Math.min(26, room / columns) };
}

/** @param {PageView} view */
function mostTrials(view) {
  return view.trials.flat().reduce((most, trials) => Math.max(most, trials), 1);
}

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui } = state;
  const { bin, ...room } = layout(state);
  const most = mostTrials(view);
  const mean = (/** @type {number} */ row, /** @type {number} */ column) => {
    const part = view.trials[entry(facts.columnOf, facts.names[row])].slice(column * bin, (column + 1) * bin);
    return sumOf(part, Number) / part.length;
  };
  return {
    ...room,
    rows: facts.names,
    height: Math.max(15, Math.min(22, Math.round(room.width))),
    chosen: ui.heat ?? null,
    draw(pen, place, { left, top, width, height }) {
      pen.fillStyle = ramp(mean(...place) / most);
      pen.fillRect(left, top, width, height - 1);
    },
    describe([row, column]) {
      const { id } = view.questions[column * bin];
      const more = Math.min(bin, view.questions.length - column * bin) - 1;
      const model = plain(facts.names[row], 60);
      if (!more) return `${model} on question ${plain(id, 60)}: ${plural(mean(row, column), "trial")}`;
      return `${model} on questions ${plain(id, 40)} and ${more} after it: ${number(mean(row, column), 1)} trials each`;
    },
    choose: (place) => (ui.heat = place),
    open: ([row, column]) => state.openQuestion(column * bin, facts.names[row]),
  };
}

/** What the colours mean. @param {number} most */
function scale(most) {
  const shades = Array.from({ length: SHADES }, (_, step) => ramp(step / (SHADES - 1)));
  const background = `linear-gradient(to right, ${shades.join(", ")})`;
  const steps = h("span", { class: "steps", "aria-hidden": "true", style: { background } });
  return h("div", { class: "scale" }, "0", steps, plural(most, "trial"));
}
