// Every model against every other: z.

import { badge } from "./chart.js";
import { h } from "./dom.js";
import { SETTLED, difference, entry, needs, pairKey, pairText, resultsOf, size } from "./facts.js";
import { grid, namesRoom, onGrid } from "./grid.js";
import { factList } from "./parts.js";
import { term } from "./terms.js";
import { chance, name, number, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts, Pair } from "./facts.js" */
/** @import { Grid, Place } from "./grid.js" */
/** @import { Section, State } from "./parts.js" */

const FULL_Z = 4; // from here on a square is filled entirely
const [MIN_SIDE, MAX_SIDE, NAMED_SIDE, NUMBERED_SIDE] = [4, 38, 13, 32];

/** @type {Section} */
export const matrix = {
  id: "matrix",
  title: "Pair matrix",
  isThere: ({ view }) => view.z.length > 1,
  render({ view, facts, ui }) {
    const content = detail(view, facts, chosenPair(facts, ui.cell));
    return [
      h("p", null, term("z"), " of the row against the column, positive where the row is ahead."),
      key(),
      h("div", { class: "beside" }, [
        grid("z of every model against every other.", "matrix"),
        h("div", { class: "detail", "data-key": "detail" }, content),
      ]),
    ];
  },
  ...onGrid(gridOf),
};

/** @param {State} state @returns {Grid} */
function gridOf(state) {
  const { view, facts, ui, width } = state;
  const { names } = facts;
  const compared = comparedPairs(facts);
  const rows = names.map((model, index) => `${index + 1} ${model}`);
  const room = namesRoom(rows, 0.25 * width);
  const sideBeside = (/** @type {number} */ left) => Math.floor((width - left - 2) / names.length);
  const isNamed = sideBeside(room) >= NAMED_SIDE;
  const side = Math.min(MAX_SIDE, Math.max(MIN_SIDE, sideBeside(isNamed ? room : 0)));
  const standing = (/** @type {Place} */ [row, column]) => ({
    z: view.z[row][column],
    pair: compared.get(pairKey(names[row], names[column])),
  });
  const [first, second] = chosenPair(facts, ui.cell);
  return {
    rows,
    heads: side >= NUMBERED_SIDE ? names.map((_, index) => String(index + 1)) : [],
    columns: names.length,
    left: isNamed ? room : 0,
    width: side,
    height: side,
    chosen: [entry(facts.rankOf, first), entry(facts.rankOf, second)],
    isEmpty: ([row, column]) => row === column,
    draw(pen, place, box) {
      const { z, pair } = standing(place);
      const height = box.height - (side > 6 ? 1 : 0);
      const isSelf = place[0] === place[1];
      pen.fillStyle = pen.ink(isSelf ? "line" : (z ?? 0) > 0 ? "ahead" : "behind");
      pen.globalAlpha = isSelf ? 1 : Math.min(1, Math.abs(z ?? 0) / FULL_Z);
      pen.fillRect(box.left, box.top, box.width, height);
      pen.globalAlpha = 1;
      pen.lineWidth = side >= NAMED_SIDE ? 2 : 1;
      pen.strokeStyle = pen.fillStyle = pen.ink("ink");
      const inset = pen.lineWidth / 2;
      if (pair) pen.strokeRect(box.left + inset, box.top + inset, box.width - 2 * inset, height - 2 * inset);
      if (side < NUMBERED_SIDE || isSelf) return;
      // far from 0 nobody needs decimals
      pen.fillText(number(z, Math.abs(z ?? 0) < 9.95 ? 1 : 0), box.left + box.width - 4, box.top + height / 2);
    },
    describe(place) {
      const { z, pair } = standing(place);
      const facts = [`z ${number(z, 1)}`, pair?.word].filter(Boolean);
      const [row, column] = place.map((index) => plain(names[index]));
      return `${row} against ${column}: ${facts.join(", ")}`;
    },
    choose([row, column]) {
      ui.cell = [names[row], names[column]];
      state.refresh("matrix");
    },
  };
}

/** What the objective compares. @param {Facts} facts @returns {Map<string, Pair>} */
function comparedPairs({ pairs }) {
  const compared = pairs.filter((pair) => pair.second !== null);
  return new Map(compared.map((pair) => [pairKey(pair.first, pair.second), pair]));
}

/** The chosen pair, or the first. @param {Facts} facts @param {[string, string]} [cell] @returns {[string, string]} */
function chosenPair({ names, rankOf }, cell) {
  return cell && rankOf.has(cell[0]) && rankOf.has(cell[1]) ? cell : [names[0], names[1]];
}

/** What fills and frames mean. */
function key() {
  const swatch = (/** @type {string} */ kind) => h("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
  return h("ul", { class: "key" }, [
    h(
      "li",
      null,
      swatch("ahead"),
      swatch("behind"),
      "the row is ahead, or behind: the fuller, the farther z is from 0",
    ),
    h("li", null, swatch("compared"), "compared by the objective"),
  ]);
}

/** @param {PageView} view @param {Facts} facts @param {[string, string]} models */
function detail(view, facts, [first, second]) {
  const [row, column] = [entry(facts.rankOf, first), entry(facts.rankOf, second)];
  const { models } = resultsOf(view);
  const pair = comparedPairs(facts).get(pairKey(first, second));
  const [a, b] = [models[row].score, models[column].score];
  const verdict = pair
    ? badge(pair.verdict, pair.word)
    : h("span", { class: "quiet" }, "not compared by the objective");
  return [
    h("h3", null, name(first, 40), " against ", name(second, 40), " ", verdict),
    factList([
      ["Difference", difference(facts, a === null || b === null ? null : a - b)],
      [term("z"), number(view.z[row][column])],
      ...(pair ? comparedFacts(facts, pair) : []),
    ]),
  ];
}

/** @param {Facts} facts @param {Pair} pair @returns {[Child, Child][]} */
function comparedFacts(facts, pair) {
  return [
    facts.gate
      ? [term("z", `${facts.gate.z}, ${pairText(facts, pair)}`), number(pair.z)]
      : [term("z", "ρ = Φ(|z|)"), chance(pair.rho)],
    [term("boundary"), SETTLED.has(pair.verdict) ? null : number(pair.boundary)],
    [term("information"), percent(pair.information)],
    [term("power"), percent(pair.power)],
    [term("trials_needed", needs(facts).label), needs(facts).of(pair)],
    ["z on questions like these", number(pair.sampled_z)],
    [term("delta", "Ties within"), size(facts, pair.certifiable_delta)],
  ];
}
