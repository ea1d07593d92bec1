// Every model against every other: z, and whether it stands when all pairs are asked at once.

import { badge } from "./chart.js";
import { h, on } from "./dom.js";
import { difference, pairKey, score, verdictWord } from "./facts.js";
import { moveInGrid } from "./grid.js";
import { nothing, factList } from "./parts.js";
import { chance, name, number, percent, plain } from "./text.js";

export const matrix = {
  id: "matrix",
  title: "Pair matrix",
  short: "Pairs",
  render({ view, facts, ui }) {
    if (!view.z.length) return nothing("There is nothing to compare before the first look.");
    if (view.z.length < 2) return nothing("One model alone has nobody to be compared with.");
    const level = 1 - (facts.decisions.stopping?.confidence ?? 0.95);
    const pairs = new Map(
      view.results.pairs.filter((pair) => pair.worse !== null).map((pair) => [pairKey(pair.better, pair.worse), pair]),
    );
    const chosen =
      ui.cell && facts.rankOf.has(ui.cell[0]) && facts.rankOf.has(ui.cell[1])
        ? ui.cell
        : [facts.names[0], facts.names[1]];
    return [
      h(
        "p",
        null,
        "z of the row against the column, positive where the row is ahead. A filled cell stands among all pairs: ",
        `its Holm-adjusted p is below ${number(level, 2)}. The frame marks what the objective compares.`,
      ),
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
    const choose = (found) => {
      state.ui.cell = [found.getAttribute("data-row"), found.getAttribute("data-column")];
      state.refresh("matrix");
    };
    on(root, "click", "[data-column]", choose);
    on(root, "focusin", "[data-column]", choose);
    on(root, "keydown", "[data-column]", (found, event) => moveInGrid(found, event));
  },
};

function cell(view, pairs, level, chosen, [model, other], [row, column]) {
  if (row === column) return h("td", { class: "self", "aria-label": "itself" });
  const z = view.z[row][column];
  const p = pOf(view, row, column);
  const stands = Math.min(p ?? 1, pOf(view, column, row) ?? 1) < level;
  const compared = pairs.get(pairKey(model, other));
  const picked = chosen[0] === model && chosen[1] === other;
  const said = [`z ${number(z, 1)}`, stands && "stands among all pairs", compared && verdictWord(compared.verdict)];
  const label = `${plain(model)} against ${plain(other)}: ${said.filter(Boolean).join(", ")}`;
  return h(
    "td",
    {
      class:
        [stands ? (z > 0 ? "ahead" : "behind") : "", compared ? "compared" : "", picked ? "picked" : ""]
          .join(" ")
          .trim() || null,
      tabindex: picked ? 0 : -1,
      "aria-selected": String(picked),
      "aria-label": label,
      "data-row": model,
      "data-column": other,
    },
    short(z),
  );
}

/** Far from 0 nobody needs decimals. */
function short(z) {
  return number(z, Math.abs(z) < 9.95 ? 1 : 0);
}

function pOf(view, row, column) {
  return view.results.adjusted_p[row]?.[column] ?? null;
}

function detail(view, facts, pairs, [model, other]) {
  const [row, column] = [facts.rankOf.get(model), facts.rankOf.get(other)];
  const [one, two] = [view.results.models[row], view.results.models[column]];
  const compared = pairs.get(pairKey(model, other));
  const gap = one.score === null || two.score === null ? null : one.score - two.score;
  const rows = [
    ["Difference", difference(facts, gap)],
    ["z", number(view.z[row][column])],
    ["Adjusted p that the row is not better", chance(pOf(view, row, column))],
    ["Adjusted p that the column is not better", chance(pOf(view, column, row))],
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

function comparedRows(facts, pair) {
  return [
    ["Boundary", number(pair.boundary)],
    ["ρ = Φ(z)", chance(pair.rho)],
    ["Information", percent(pair.information)],
    ["Chance to be settled", percent(pair.power)],
    ["Trials a question it takes", pair.trials_needed === null ? "–" : String(Math.ceil(pair.trials_needed))],
    ["z on questions like these", number(pair.sampled_z)],
    ["Certifiable δ", pair.certifiable_delta === null ? "–" : score(facts, pair.certifiable_delta)],
  ];
}
