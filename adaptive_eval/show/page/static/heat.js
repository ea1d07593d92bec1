// Where the trials went: models by questions.

import { ramp } from "./chart.js";
import { h } from "./dom.js";
import { entry } from "./facts.js";
import { grid, namesRoom, paint, wire } from "./grid.js";
import { data } from "./parts.js";
import { count, number, plain, plural } from "./text.js";
/** @import { Grid, Place } from "./grid.js" */
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */

/** @type {Section} */
export const heat = {
  id: "trials",
  title: "Where the trials went",
  render(state) {
    const { view, facts } = state;
    const { bin } = binsOf(state);
    const total = view.trials.flat().reduce((sum, one) => sum + one, 0);
    return [
      h("p", null, [
        `${plural(total, "trial")} over ${plural(facts.names.length, "model")} and `,
        plural(view.questions.length, "question"),
        bin > 1 ? `; each column is ${bin} questions, shown by their mean` : "",
        ". Models in the order of the ranking.",
      ]),
      grid("Trials of each model on each question. Enter opens the question.", "heat map"),
      scale(mostOf(view)),
      countsBehind(view, facts),
    ];
  },
  painted: (root, state) => paint(root, gridOf(state)),
  wire: (root, state) => wire(root, state, gridOf),
};

/** Several questions share a column where there are more of them than room. @param {State} state */
function binsOf({ view, facts, width }) {
  const left = namesRoom(facts.names, width < 560 ? 84 : 210);
  const across = Math.max(1, view.questions.length);
  const room = Math.max(120, width - left - 2);
  const bin = Math.ceil(across / Math.max(1, Math.floor(room / 2)));
  const columns = Math.ceil(across / bin);
  return { left, bin, columns, width: Math.min(26, room / columns) };
}

/** @param {RunView} view */
function mostOf(view) {
  return view.trials.flat().reduce((found, one) => Math.max(found, one), 1);
}

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui } = state;
  const { bin, ...lay } = binsOf(state);
  const most = mostOf(view);
  const mean = (/** @type {Place} */ [row, column]) => {
    const part = view.trials[entry(facts.columnOf, facts.names[row])].slice(column * bin, (column + 1) * bin);
    return part.reduce((sum, one) => sum + one, 0) / part.length;
  };
  return {
    ...lay,
    rows: facts.names,
    height: Math.max(15, Math.min(22, Math.round(lay.width))),
    chosen: ui.heat ?? null,
    draw(pen, at, { left, top, width, height }) {
      pen.fillStyle = ramp(mean(at) / most);
      pen.fillRect(left, top, width, height - 1);
    },
    tell(at) {
      const [row, column] = at;
      const first = view.questions[column * bin].id;
      const after = Math.min(bin, view.questions.length - column * bin) - 1;
      const where = after > 0 ? `questions ${plain(first, 40)} and ${after} after it` : `question ${plain(first, 60)}`;
      const told = after > 0 ? `${number(mean(at), 1)} trials each` : plural(mean(at), "trial");
      return `${plain(facts.names[row], 60)} on ${where}: ${told}`;
    },
    choose: (at) => (ui.heat = at),
    open: ([row, column]) => state.openQuestion(column * bin, facts.names[row]),
  };
}

/** @param {number} most */
function scale(most) {
  const step = (/** @type {number} */ at) => h("span", { style: { background: ramp(at / 23) } });
  return h("div", { class: "scale", "data-key": `scale-${most}` }, [
    h("span", null, "0"),
    h(
      "span",
      { class: "steps", "aria-hidden": "true" },
      Array.from({ length: 24 }, (_, at) => step(at)),
    ),
    h("span", null, plural(most, "trial")),
  ]);
}

/** @param {RunView} view @param {Facts} facts */
function countsBehind(view, facts) {
  const row = (/** @type {string} */ name) => {
    const trials = view.trials[entry(facts.columnOf, name)];
    const sum = trials.reduce((total, one) => total + one, 0);
    const [least, mean, most] = [Math.min(...trials), (sum / trials.length).toFixed(1), Math.max(...trials)];
    return [plain(name, 60), count(sum), count(least), mean, count(most)];
  };
  const head = ["Model", "Trials", "Least", "Mean", "Most"];
  return data("Trials a question", () => ({ head, rows: facts.names.map(row) }));
}
