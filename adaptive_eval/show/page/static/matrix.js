// Every model against every other: z, and whether it stands when all pairs are asked at once.

import { badge } from "./chart.js";
import { h } from "./dom.js";
import { difference, entry, needs, pairKey, pairText, resultsOf, SETTLED, size } from "./facts.js";
import { grid, namesRoom, paint, wire } from "./grid.js";
import { factList } from "./parts.js";
import { term } from "./terms.js";
import { chance, name, number, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts, Pair } from "./facts.js" */
/** @import { Grid, Place } from "./grid.js" */
/** @import { Section, State } from "./parts.js" */

/** @typedef {Map<string, Pair>} Pairs */

const [LEAST_SIDE, MOST_SIDE, NAMED, NUMBERED] = [4, 38, 13, 32];

/** @type {Section} */
export const matrix = {
  id: "matrix",
  title: "Pair matrix",
  isThere: ({ view }) => view.z.length > 1,
  render({ view, facts, ui }) {
    return [
      h("p", null, term("z"), " of the row against the column, positive where the row is ahead."),
      key(levelOf(facts)),
      h("div", { class: "beside" }, [
        grid("z of every model against every other.", "matrix"),
        h(
          "div",
          { class: "detail", "data-key": "detail" },
          detail(view, facts, pairsOf(facts), chosenOf(facts, ui.cell)),
        ),
      ]),
    ];
  },
  painted: (root, state) => paint(root, gridOf(state)),
  wire: (root, state) => wire(root, state, gridOf),
};

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui, width } = state;
  const { names } = facts;
  const [level, pairs] = [levelOf(facts), pairsOf(facts)];
  const rows = names.map((model, at) => `${at + 1} ${model}`);
  const room = namesRoom(rows, 0.25 * width);
  const beside = (/** @type {number} */ left) => Math.floor((width - left - 2) / names.length);
  const isNamed = beside(room) >= NAMED;
  const side = Math.min(MOST_SIDE, Math.max(LEAST_SIDE, beside(isNamed ? room : 0)));
  const of = (/** @type {Place} */ [row, column]) =>
    /** @type {[[string, string], Standing]} */ ([
      [names[row], names[column]],
      standing(view, pairs, level, [names[row], names[column]], [row, column]),
    ]);
  const [first, second] = chosenOf(facts, ui.cell);
  return {
    rows,
    heads: side >= NUMBERED ? names.map((_, at) => String(at + 1)) : [],
    columns: names.length,
    left: isNamed ? room : 0,
    width: side,
    height: side,
    chosen: [entry(facts.rankOf, first), entry(facts.rankOf, second)],
    passes: ([row, column]) => row === column,
    draw(pen, at, box) {
      const height = box.height - (side > 6 ? 1 : 0);
      const [, { z, stands, called, compared }] = of(at);
      const isSelf = at[0] === at[1];
      const fill = isSelf ? "line" : stands || called ? ((z ?? 0) > 0 ? "ahead" : "behind") : "card";
      pen.fillStyle = pen.ink(fill);
      pen.globalAlpha = called && !stands ? 0.45 : 1;
      pen.fillRect(box.left, box.top, box.width, height);
      pen.globalAlpha = 1;
      pen.lineWidth = side >= NAMED ? 2 : 1;
      pen.strokeStyle = pen.fillStyle = pen.ink("ink");
      const inset = pen.lineWidth / 2;
      if (compared) pen.strokeRect(box.left + inset, box.top + inset, box.width - 2 * inset, height - 2 * inset);
      if (side >= NUMBERED && !isSelf) pen.fillText(short(z), box.left + box.width - 4, box.top + height / 2);
    },
    tell: (at) => labelOf(...of(at)),
    choose([row, column]) {
      ui.cell = [names[row], names[column]];
      state.refresh("matrix");
    },
  };
}

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

/** What fills and frames say. @param {number} level */
function key(level) {
  const swatch = (/** @type {string} */ className) =>
    h("span", { class: `swatch ${className}`, "aria-hidden": "true" });
  return h("ul", { class: "key" }, [
    h("li", null, [
      swatch("ahead"),
      swatch("behind"),
      "stands among all pairs: ",
      term("adjusted_p", "adjusted p"),
      ` below ${number(level, 2)}`,
    ]),
    h("li", null, swatch("ahead alone"), swatch("behind alone"), "called by the run, but not standing among all pairs"),
    h("li", null, swatch("compared"), "compared by the objective"),
  ]);
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
 * @param {Place} place
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
    h("h3", null, [
      name(model, 40),
      " against ",
      name(other, 40),
      " ",
      compared
        ? badge(compared.verdict, compared.word)
        : h("span", { class: "quiet" }, "not compared by the objective"),
    ]),
    factList(rows),
  ];
}

/** @param {Facts} facts @param {Pair} pair @returns {[Child, Child][]} */
function comparedRows(facts, pair) {
  const judged = facts.gate ? `${facts.gate.z}, ${pairText(facts, pair)}` : null;
  return [
    ...(judged === null ? [] : [/** @type {[Child, Child]} */ ([term("z", judged), number(pair.z)])]),
    ...(SETTLED.has(pair.verdict) ? [] : [/** @type {[Child, Child]} */ ([term("boundary"), number(pair.boundary)])]),
    ...(judged !== null ? [] : [/** @type {[Child, Child]} */ ([term("z", "ρ = Φ(|z|)"), chance(pair.rho)])]),
    [term("information"), percent(pair.information)],
    [term("power"), percent(pair.power)],
    [term("trials_needed", needs(facts).label), needs(facts).of(pair)],
    ["z on questions like these", number(pair.sampled_z)],
    [term("delta", "Certifiable δ"), size(facts, pair.certifiable_delta)],
  ];
}
