// Where the trials went: models by questions, on a canvas, since there may be thousands of cells.

import { fitted, ramp, roomFor } from "./chart.js";
import { h, on } from "./dom.js";
import { entry } from "./facts.js";
import { stepOf } from "./grid.js";
import { data } from "./parts.js";
import { count, number, plain, plural } from "./text.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {[row: number, column: number]} Place */

/**
 * How the cells lie, in pixels.
 * @typedef {object} Plan
 * @property {number} left
 * @property {number} bin
 * @property {number} columns
 * @property {number} cell
 * @property {number} row
 * @property {number} rows
 * @property {number} most
 * @property {(column: number) => number} at
 */

/** @type {WeakMap<State, Plan>} */
const plans = new WeakMap();

/** @type {Section} */
export const heat = {
  id: "trials",
  title: "Where the trials went",
  render(state) {
    const { view, facts } = state;
    const plan = planOf(state);
    plans.set(state, plan);
    const total = view.trials.flat().reduce((sum, one) => sum + one, 0);
    return [
      h(
        "p",
        null,
        `${plural(total, "trial")} over ${plural(facts.names.length, "model")} and `,
        plural(view.questions.length, "question"),
        plan.bin > 1 ? `; each column is ${plan.bin} questions, shown by their mean` : "",
        ". Models in the order of the ranking.",
      ),
      h(
        "div",
        { class: "heat", "data-key": "heat", "data-own": "" },
        h("canvas", {
          tabindex: 0,
          role: "application",
          "aria-roledescription": "heat map",
          "aria-label": "Trials of each model on each question. Arrow keys move, Enter opens the question.",
        }),
        h("output", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys."),
      ),
      scale(plan),
      countsBehind(view, facts),
    ];
  },
  painted(root, state) {
    paint(root, state);
  },
  wire(root, state) {
    on(root, "pointermove", "canvas", (canvas, event) => choose(root, state, pointed(canvas, event, planFor(state))));
    on(root, "click", "canvas", (canvas, event) =>
      open(state, choose(root, state, pointed(canvas, event, planFor(state)))),
    );
    on(root, "keydown", "canvas", (_, event) => {
      const step = stepOf(event);
      if (step) {
        event.preventDefault();
        const [row, column] = state.ui.heat ?? [0, -1];
        choose(root, state, [row + step[0], column + step[1]]);
      } else if (event.key === "Enter" && state.ui.heat) {
        event.preventDefault(); // or the same key press would go on to the dialog, and close it
        open(state, state.ui.heat);
      }
    });
  },
};

/** @param {State} state @param {Place | null} cell */
function open(state, cell) {
  if (cell) state.openQuestion(cell[1] * planFor(state).bin, state.facts.names[cell[0]]);
}

/** How the cells lie that were drawn last. @param {State} state */
function planFor(state) {
  return plans.get(state) ?? planOf(state);
}

/**
 * How the cells lie: several questions share a column where there are more of them than room.
 * @param {State} state @returns {Plan}
 */
function planOf({ view, facts, width }) {
  const left = Math.ceil(roomFor(facts.names, width < 560 ? 84 : 210)) + 10;
  const across = Math.max(1, view.questions.length);
  const room = Math.max(120, width - left - 2);
  const bin = Math.ceil(across / Math.max(1, Math.floor(room / 2)));
  const columns = Math.ceil(across / bin);
  const cell = Math.min(26, room / columns);
  const rows = facts.names.length;
  const most = view.trials.flat().reduce((found, one) => Math.max(found, one), 1);
  const row = Math.max(15, Math.min(22, Math.round(cell)));
  // on whole pixels, so that no seam shows between cells
  return { left, bin, columns, cell, row, rows, most, at: (column) => Math.round(left + column * cell) };
}

/** @param {RunView} view @param {Facts} facts @param {Plan} plan @param {number} row @param {number} column */
function valueAt(view, facts, plan, row, column) {
  const trials = view.trials[entry(facts.columnOf, facts.names[row])];
  const part = trials.slice(column * plan.bin, (column + 1) * plan.bin);
  return part.reduce((sum, one) => sum + one, 0) / part.length;
}

/** @param {HTMLElement} root @param {State} state */
function paint(root, state) {
  const canvas = /** @type {HTMLCanvasElement} */ (root.querySelector("canvas"));
  const { view, facts } = state;
  const plan = planFor(state);
  const dense = window.devicePixelRatio || 1;
  const [width, height] = [plan.at(plan.columns), plan.rows * plan.row];
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const gap = plan.cell > 6 ? 1 : 0;
  for (let row = 0; row < plan.rows; row += 1) {
    context.fillStyle = style.color;
    context.fillText(fitted(facts.names[row], plan.left - 10), plan.left - 8, (row + 0.5) * plan.row);
    for (let column = 0; column < plan.columns; column += 1) {
      context.fillStyle = ramp(valueAt(view, facts, plan, row, column) / plan.most);
      const left = plan.at(column);
      context.fillRect(left, row * plan.row, plan.at(column + 1) - left - gap, plan.row - 1);
    }
  }
  outline(context, style, state);
}

/** @param {CanvasRenderingContext2D} context @param {CSSStyleDeclaration} style @param {State} state */
function outline(context, style, state) {
  const { ui } = state;
  if (!ui.heat) return;
  const plan = planFor(state);
  const [row, column] = ui.heat;
  context.strokeStyle = style.color;
  context.lineWidth = 2;
  context.strokeRect(plan.at(column), row * plan.row, Math.max(plan.cell - 1, 2), plan.row - 1);
}

/** @param {HTMLElement} canvas @param {MouseEvent} event @param {Plan} plan @returns {Place} */
function pointed(canvas, event, plan) {
  const box = canvas.getBoundingClientRect();
  return [
    Math.floor((event.clientY - box.top) / plan.row),
    Math.floor((event.clientX - box.left - plan.left) / plan.cell),
  ];
}

/** @param {HTMLElement} root @param {State} state @param {Place} place @returns {Place | null} */
function choose(root, state, [row, column]) {
  const { view, facts, ui } = state;
  const plan = planFor(state);
  if (column < 0 || column >= plan.columns || row < 0 || row >= plan.rows) return null;
  if (ui.heat?.[0] !== row || ui.heat?.[1] !== column) {
    ui.heat = [row, column];
    const first = view.questions[column * plan.bin].id;
    const after = Math.min(plan.bin, view.questions.length - column * plan.bin) - 1;
    const where = after > 0 ? `questions ${plain(first, 40)} and ${after} after it` : `question ${plain(first, 60)}`;
    const mean = valueAt(view, facts, plan, row, column);
    const told = after > 0 ? `${number(mean, 1)} trials each` : plural(mean, "trial");
    /** @type {HTMLElement} */ (root.querySelector(".readout")).textContent =
      `${plain(facts.names[row], 60)} on ${where}: ${told}`;
    paint(root, state);
  }
  return ui.heat;
}

/** @param {Plan} plan */
function scale(plan) {
  const steps = 24;
  return h(
    "div",
    { class: "scale", "data-key": `scale-${plan.most}` },
    h("span", null, "0"),
    h(
      "span",
      { class: "steps", "aria-hidden": "true" },
      Array.from({ length: steps }, (_, at) => h("span", { style: { background: ramp(at / (steps - 1)) } })),
    ),
    h("span", null, plural(plan.most, "trial")),
  );
}

/** @param {RunView} view @param {Facts} facts */
function countsBehind(view, facts) {
  const row = (/** @type {string} */ name) => {
    const trials = view.trials[entry(facts.columnOf, name)];
    const sum = trials.reduce((total, one) => total + one, 0);
    return [
      plain(name, 60),
      count(sum),
      count(Math.min(...trials)),
      (sum / trials.length).toFixed(1),
      count(Math.max(...trials)),
    ];
  };
  const head = ["Model", "Trials", "Least", "Mean", "Most"];
  return data("Trials a question", () => ({ head, rows: facts.names.map(row) }));
}
