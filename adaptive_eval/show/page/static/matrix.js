// Every model against every other: z, and whether it stands when all pairs are asked at once.

import { badge } from "./chart.js";
import { h, on } from "./dom.js";
import { difference, entry, needs, pairKey, pairText, resultsOf, SETTLED, size } from "./facts.js";
import { moveInGrid, stepOf } from "./grid.js";
import { nothing, factList } from "./parts.js";
import { MOST_IN_A_TABLE, layOf, paintSquares, squareAt, squares, stepped } from "./squares.js";
import { term } from "./terms.js";
import { chance, name, number, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts, Pair } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */
/** @import { Fill, Square } from "./squares.js" */

/** @typedef {Map<string, Pair>} Pairs */

/** @type {Section} */
export const matrix = {
  id: "matrix",
  title: "Pair matrix",
  render({ view, facts, ui }) {
    if (!view.z.length) return nothing("There is nothing to compare before the first look.");
    if (view.z.length < 2) return nothing("There is only one model, so that nothing is compared.");
    const level = levelOf(facts);
    const pairs = pairsOf(facts);
    const chosen = chosenOf(facts, ui.cell);
    const label = "z of every model against every other";
    const all =
      view.z.length > MOST_IN_A_TABLE ? squares(`${label}. Arrow keys move.`) : grid(label, view, facts, pairs, chosen);
    return [
      h("p", null, term("z"), " of the row against the column, positive where the row is ahead."),
      key(level),
      h(
        "div",
        { class: "beside" },
        all,
        h("div", { class: "detail", "data-key": "detail" }, detail(view, facts, pairs, chosen)),
      ),
    ];
  },
  painted(root, state) {
    const canvas = /** @type {HTMLCanvasElement | null} */ (root.querySelector("canvas"));
    if (canvas) paint(canvas, state);
  },
  wire(root, state) {
    const choose = (/** @type {HTMLElement} */ { dataset: { row = "", column = "" } }) => {
      state.ui.cell = [row, column];
      state.refresh("matrix");
    };
    on(root, "click", "[data-column]", choose);
    on(root, "focusin", "[data-column]", choose);
    on(root, "keydown", "[data-column]", moveInGrid);
    const pick = (/** @type {Square | null} */ at) => {
      if (at === null || at[0] === at[1]) return;
      state.ui.cell = [state.facts.names[at[0]], state.facts.names[at[1]]];
      state.refresh("matrix");
    };
    on(root, "click", "canvas", (canvas, event) =>
      pick(squareAt(canvas, event, layOf(state.facts.names, state.width))),
    );
    on(root, "pointermove", "canvas", (canvas, event) =>
      tell(root, state, squareAt(canvas, event, layOf(state.facts.names, state.width))),
    );
    on(root, "keydown", "canvas", (_, event) => {
      const step = stepOf(event);
      if (step === null) return;
      event.preventDefault();
      pick(stepped(placeOf(state.facts, chosenOf(state.facts, state.ui.cell)), step, state.facts.names.length));
    });
  },
};

/** What the objective compares. @param {Facts} facts @returns {Pairs} */
function pairsOf(facts) {
  const compared = facts.pairs.filter((pair) => pair.worse !== null);
  return new Map(compared.map((pair) => [pairKey(pair.better, pair.worse), pair]));
}

/** @param {Facts} facts */
function levelOf(facts) {
  return 1 - (facts.decisions.stopping?.confidence ?? 0.95);
}

/** The pair that the reader has chosen, or the first. @param {Facts} facts @param {[string, string] | undefined} cell @returns {[string, string]} */
function chosenOf(facts, cell) {
  return cell && facts.rankOf.has(cell[0]) && facts.rankOf.has(cell[1]) ? cell : [facts.names[0], facts.names[1]];
}

/** @param {Facts} facts @param {[string, string]} models @returns {Square} */
function placeOf(facts, [model, other]) {
  return [entry(facts.rankOf, model), entry(facts.rankOf, other)];
}

/** @param {HTMLCanvasElement} canvas @param {State} state */
function paint(canvas, state) {
  const { view, facts, ui, width } = state;
  const [level, pairs, names] = [levelOf(facts), pairsOf(facts), facts.names];
  const picked = placeOf(facts, chosenOf(facts, ui.cell));
  paintSquares(
    canvas,
    names,
    layOf(names, width),
    (at) => {
      if (at[0] === at[1]) return { fill: "self", alone: false, framed: false };
      const { z, stands, called, compared } = standing(view, pairs, level, [names[at[0]], names[at[1]]], at);
      const fill = /** @type {Fill} */ (stands || called ? ((z ?? 0) > 0 ? "ahead" : "behind") : "");
      return { fill, alone: called && !stands, framed: compared !== undefined };
    },
    picked,
  );
  tell(/** @type {HTMLElement} */ (canvas.parentElement), state, picked);
}

/** Says what is under the pointer. @param {HTMLElement} root @param {State} state @param {Square | null} at */
function tell(root, { view, facts }, at) {
  if (at === null || at[0] === at[1]) return;
  /** @type {HTMLElement} */ (root.querySelector(".readout")).textContent = labelOf(
    [facts.names[at[0]], facts.names[at[1]]],
    standing(view, pairsOf(facts), levelOf(facts), [facts.names[at[0]], facts.names[at[1]]], at),
  );
}

/**
 * Every cell with its number.
 * @param {string} label @param {RunView} view @param {Facts} facts @param {Pairs} pairs @param {[string, string]} chosen
 */
function grid(label, view, facts, pairs, chosen) {
  const level = levelOf(facts);
  return h(
    "div",
    { class: "scroll", "data-key": "grid" },
    h(
      "table",
      { class: "matrix", role: "grid", "aria-label": label },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("td", null),
          facts.names.map((model, at) => h("th", { scope: "col", "data-tip": plain(model) }, at + 1)),
        ),
      ),
      h(
        "tbody",
        null,
        facts.names.map((model, row) =>
          h(
            "tr",
            { "data-key": model },
            h("th", { scope: "row" }, h("span", { class: "rank" }, row + 1), " ", name(model, 24)),
            facts.names.map((other, column) => cell(view, pairs, level, chosen, [model, other], [row, column])),
          ),
        ),
      ),
    ),
  );
}

/** What fills and frames say. @param {number} level */
function key(level) {
  const swatch = (/** @type {string} */ className) =>
    h("span", { class: `swatch ${className}`, "aria-hidden": "true" });
  return h(
    "ul",
    { class: "key" },
    h(
      "li",
      null,
      swatch("ahead"),
      swatch("behind"),
      "stands among all pairs: ",
      term("adjusted_p", "adjusted p"),
      ` below ${number(level, 2)}`,
    ),
    h("li", null, swatch("ahead alone"), swatch("behind alone"), "called by the run, but not standing among all pairs"),
    h("li", null, swatch("compared"), "compared by the objective"),
  );
}

/**
 * @typedef {object} Standing
 * @property {number | null} z
 * @property {boolean} stands among all pairs
 * @property {boolean} called by the run
 * @property {Pair | undefined} compared by the objective
 */

/**
 * What is known of a pair.
 * @param {RunView} view
 * @param {Pairs} pairs
 * @param {number} level
 * @param {[string, string]} models
 * @param {Square} place
 * @returns {Standing}
 */
function standing(view, pairs, level, [model, other], [row, column]) {
  const compared = pairs.get(pairKey(model, other));
  const p = Math.min(pOf(view, row, column) ?? 1, pOf(view, column, row) ?? 1);
  return {
    z: view.z[row][column],
    stands: p < level,
    called: compared?.verdict === "resolved" && !resultsOf(view).gate.length, // which is not about the order
    compared,
  };
}

/** @param {[string, string]} models @param {Standing} found */
function labelOf([model, other], { z, stands, compared }) {
  const said = [`z ${number(z, 1)}`, stands && "stands among all pairs", compared?.word];
  return `${plain(model)} against ${plain(other)}: ${said.filter(Boolean).join(", ")}`;
}

/**
 * @param {RunView} view
 * @param {Pairs} pairs
 * @param {number} level
 * @param {[string, string]} chosen
 * @param {[string, string]} models
 * @param {Square} place
 */
function cell(view, pairs, level, chosen, [model, other], [row, column]) {
  if (row === column) return h("td", { class: "self", "aria-label": "itself" });
  const found = standing(view, pairs, level, [model, other], [row, column]);
  const { z, stands, called, compared } = found;
  const picked = chosen[0] === model && chosen[1] === other;
  return h(
    "td",
    {
      class:
        [
          (stands || called) && ((z ?? 0) > 0 ? "ahead" : "behind"),
          called && !stands && "alone",
          compared && "compared",
          picked && "picked",
        ]
          .filter(Boolean)
          .join(" ") || null,
      tabindex: picked ? 0 : -1,
      "aria-selected": String(picked),
      "aria-label": labelOf([model, other], found),
      "data-row": model,
      "data-column": other,
    },
    short(z),
  );
}

/** Far from 0 nobody needs decimals. @param {number | null} z */
function short(z) {
  return number(z, Math.abs(z ?? 0) < 9.95 ? 1 : 0);
}

/** @param {RunView} view @param {number} row @param {number} column */
function pOf(view, row, column) {
  return resultsOf(view).adjusted_p[row]?.[column] ?? null;
}

/** @param {RunView} view @param {Facts} facts @param {Pairs} pairs @param {[string, string]} models */
function detail(view, facts, pairs, [model, other]) {
  const [row, column] = [entry(facts.rankOf, model), entry(facts.rankOf, other)];
  const { models } = resultsOf(view);
  const [one, two] = [models[row], models[column]];
  const compared = pairs.get(pairKey(model, other));
  const gap = one.score === null || two.score === null ? null : one.score - two.score;
  /** @type {[Child, Child][]} */
  const rows = [
    ["Difference", difference(facts, gap)],
    [term("z"), number(view.z[row][column])],
    [[term("adjusted_p"), " that the row is not better"], chance(pOf(view, row, column))],
    [[term("adjusted_p"), " that the column is not better"], chance(pOf(view, column, row))],
    ...(compared ? comparedRows(facts, compared) : []),
  ];
  return [
    h(
      "h3",
      null,
      name(model, 40),
      " against ",
      name(other, 40),
      " ",
      compared
        ? badge(compared.verdict, compared.word)
        : h("span", { class: "quiet" }, "not compared by the objective"),
    ),
    factList(rows),
  ];
}

/** @param {Facts} facts @param {Pair} pair @returns {[Child, Child][]} */
function comparedRows(facts, pair) {
  const judged = facts.gate ? `${facts.gate.z}, ${pairText(facts, pair)}` : null;
  return [
    ...(judged === null ? [] : [/** @type {[Child, Child]} */ ([term("z", judged), number(pair.z)])]),
    ...(SETTLED.has(pair.verdict) ? [] : [/** @type {[Child, Child]} */ ([term("boundary"), number(pair.boundary)])]),
    ...(judged !== null ? [] : [/** @type {[Child, Child]} */ ([term("rho", "ρ = Φ(|z|)"), chance(pair.rho)])]),
    [term("information"), percent(pair.information)],
    [term("power"), percent(pair.power)],
    [term(needs(facts).key), needs(facts).of(pair)],
    ["z on questions like these", number(pair.sampled_z)],
    [term("certifiable_delta"), size(facts, pair.certifiable_delta)],
  ];
}
