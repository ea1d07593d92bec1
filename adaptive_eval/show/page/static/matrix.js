// Every model against every other: z, and whether it stands when all pairs are asked at once.

import { badge } from "./chart.js";
import { h, on } from "./dom.js";
import { difference, entry, pairKey, resultsOf, score, verdictWord } from "./facts.js";
import { moveInGrid } from "./grid.js";
import { nothing, factList } from "./parts.js";
import { term } from "./terms.js";
import { chance, name, number, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { PairRow, RunView } from "./sent.js" */
/** @import { Section } from "./parts.js" */

/** @typedef {Map<string, PairRow>} Pairs */

/** @type {Section} */
export const matrix = {
  id: "matrix",
  title: "Pair matrix",
  short: "Pairs",
  render({ view, facts, ui }) {
    if (!view.z.length) return nothing("There is nothing to compare before the first look.");
    if (view.z.length < 2) return nothing("One model alone has nobody to be compared with.");
    const results = resultsOf(view);
    const level = 1 - (facts.decisions.stopping?.confidence ?? 0.95);
    const pairs = new Map(
      results.pairs.filter((pair) => pair.worse !== null).map((pair) => [pairKey(pair.better, pair.worse), pair]),
    );
    /** @type {[string, string]} */
    const chosen =
      ui.cell && facts.rankOf.has(ui.cell[0]) && facts.rankOf.has(ui.cell[1])
        ? ui.cell
        : [facts.names[0], facts.names[1]];
    return [
      h("p", null, term("z"), " of the row against the column, positive where the row is ahead."),
      key(level),
      h(
        "div",
        { class: "beside" },
        h(
          "div",
          { class: "scroll", "data-key": "grid" },
          h(
            "table",
            { class: "matrix", role: "grid", "aria-label": "z of every model against every other" },
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
        ),
        h("div", { class: "detail", "data-key": "detail" }, detail(view, facts, pairs, chosen)),
      ),
    ];
  },
  wire(root, state) {
    const choose = (/** @type {HTMLElement} */ { dataset: { row = "", column = "" } }) => {
      state.ui.cell = [row, column];
      state.refresh("matrix");
    };
    on(root, "click", "[data-column]", choose);
    on(root, "focusin", "[data-column]", choose);
    on(root, "keydown", "[data-column]", moveInGrid);
  },
};

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
    h("li", null, swatch("ahead alone"), swatch("behind alone"), "called by the run, by itself alone"),
    h("li", null, swatch("compared"), "compared by the objective"),
  );
}

/**
 * @param {RunView} view
 * @param {Pairs} pairs
 * @param {number} level
 * @param {[string, string]} chosen
 * @param {[string, string]} models
 * @param {[number, number]} place
 */
function cell(view, pairs, level, chosen, [model, other], [row, column]) {
  if (row === column) return h("td", { class: "self", "aria-label": "itself" });
  const z = view.z[row][column];
  const p = pOf(view, row, column);
  const stands = Math.min(p ?? 1, pOf(view, column, row) ?? 1) < level;
  const compared = pairs.get(pairKey(model, other));
  const picked = chosen[0] === model && chosen[1] === other;
  const called = compared?.verdict === "resolved";
  const said = [`z ${number(z, 1)}`, stands && "stands among all pairs", compared && verdictWord(compared.verdict)];
  const label = `${plain(model)} against ${plain(other)}: ${said.filter(Boolean).join(", ")}`;
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
      "aria-label": label,
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
      compared ? badge(compared.verdict) : h("span", { class: "quiet" }, "not compared by the objective"),
    ),
    factList(rows),
  ];
}

/** @param {Facts} facts @param {PairRow} pair @returns {[Child, Child][]} */
function comparedRows(facts, pair) {
  return [
    [term("boundary"), number(pair.boundary)],
    [term("rho", "ρ = Φ(z)"), chance(pair.rho)],
    [term("information"), percent(pair.information)],
    [term("power"), percent(pair.power)],
    [term("trials_needed"), pair.trials_needed === null ? "–" : String(Math.ceil(pair.trials_needed))],
    ["z on questions like these", number(pair.sampled_z)],
    [term("certifiable_delta"), pair.certifiable_delta === null ? "–" : score(facts, pair.certifiable_delta)],
  ];
}
