// The stopping rule at work: z of each comparison against its boundary, look by look.

import { badge } from "./chart.js";
import { h, on } from "./dom.js";
import { SETTLED, entry, comparesNothing, needs, pairKey, pairText, score, size, unit } from "./facts.js";
import { region, table } from "./parts.js";
import { term } from "./terms.js";
import { count, number, percent, plural } from "./text.js";
import { hasGap, large, small, titleOf } from "./walk.js";
/** @import { Facts, Point } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */

const SHOWN = 24;
const MOST_LEFT = 300;

/** @type {Section} */
export const stopping = {
  id: "stopping",
  title: "The stopping rule at work",
  isThere: ({ facts }) => facts.pairs.length > 0,
  render(state) {
    const { facts, ui } = state;
    const pairs = walkedPairs(facts);
    if (!pairs.length) return [h("p", { class: "quiet" }, "The looks are taken anew when the run goes on.")];
    const keys = pairs.map(keyOf);
    const chosen =
      ui.pair !== undefined && facts.series.has(ui.pair) ? ui.pair : keys[mostTelling(pairs, keys, facts.series)];
    const shown = ui.allPairs ? pairs.length : Math.min(SHOWN, pairs.length);
    return [
      explanation(facts, entry(facts.series, chosen).points),
      large(state, entry(facts.series, chosen), pairs[keys.indexOf(chosen)]),
      picker(state, chosen, keys),
      h(
        "div",
        { class: "panels" },
        pairs.slice(0, shown).map((pair, at) => small(facts, entry(facts.series, keys[at]), pair, keys[at] === chosen)),
      ),
      shown < pairs.length
        ? h(
            "button",
            { type: "button", class: "more", "data-all-pairs": "" },
            `Show all ${plural(pairs.length, unit(facts))}`,
          )
        : null,
      left(facts),
    ];
  },
  wire(root, state) {
    on(root, "click", "[data-pair]", (button) => choose(state, button.dataset.pair ?? ""));
    on(root, "change", "[data-pairs]", (/** @type {HTMLSelectElement} */ select) => choose(state, select.value));
    on(root, "click", "[data-all-pairs]", () => {
      state.ui.allPairs = true;
      state.refresh("stopping");
    });
  },
};

/** @param {PairRow} pair */
function keyOf(pair) {
  return pairKey(pair.better, pair.worse);
}

/** After a resume with other settings the results may be ahead of the looks, which are taken anew. @param {Facts} facts */
function walkedPairs(facts) {
  return facts.pairs.filter((pair) => facts.series.has(keyOf(pair)));
}

/** @param {State} state @param {string} key */
function choose(state, key) {
  state.ui.pair = key;
  state.refresh("stopping");
}

/**
 * The first comparison that is open, else the one that was decided last.
 * @param {PairRow[]} pairs @param {string[]} keys @param {Facts["series"]} series
 */
function mostTelling(pairs, keys, series) {
  const open = pairs.findIndex((pair) => pair.verdict === "open");
  if (open >= 0) return open;
  const decided = keys.map((key) => entry(series, key).points.find((point) => point.verdict !== "open")?.look ?? 0);
  return decided.indexOf(Math.max(...decided));
}

/** @param {Facts} facts @param {Point[]} points */
function explanation(facts, points) {
  if (comparesNothing(facts))
    return h("p", null, "A score is known once half of its 95% interval is within the width that was asked for.");
  const gap = hasGap(points) ? " A gap: the two were not compared at those looks." : "";
  const tie =
    !facts.gate && (facts.decisions.stopping?.delta ?? 0) > 0
      ? [
          " Within the inner wedge, which opens as the difference becomes known to within ",
          term("delta", "delta"),
          ", the pair is called tied.",
        ]
      : null;
  return h("p", null, [
    "A comparison is called at the first ",
    term("look", "look"),
    " at which ",
    term("z", facts.gate?.z),
    " lies beyond the ",
    term("boundary", "boundary"),
    ", above it or below.",
    tie,
    ` Calls and ties stand.${gap}`,
  ]);
}

/** @param {State} state @param {string} chosen @param {string[]} current */
function picker(state, chosen, current) {
  const { series } = state.facts;
  const others = [...series.keys()].filter((key) => !current.includes(key));
  const option = (/** @type {string} */ key) =>
    h("option", { value: key, selected: key === chosen }, titleOf(state.facts, entry(series, key)));
  return h("label", { class: "picker" }, [
    "Comparison ",
    h("select", { "data-pairs": "" }, [
      h("optgroup", { label: "Compared now" }, current.map(option)),
      others.length ? h("optgroup", { label: "Compared at an earlier look" }, others.map(option)) : null,
    ]),
  ]);
}

/** What is open, out of reach or blocked, and how many trials it would need. @param {Facts} facts */
function left(facts) {
  const { pairs } = facts;
  const rows = pairs.filter((pair) => !SETTLED.has(pair.verdict));
  if (!rows.length)
    return h(
      "p",
      { class: "note" },
      `${pairs.length === 1 ? "The only" : `All ${count(pairs.length)}`} ${unit(facts)}${
        pairs.length === 1 ? " is" : "s are"
      } decided.`,
    );
  const sorted = [...rows].sort((one, other) => (one.trials_needed ?? Infinity) - (other.trials_needed ?? Infinity));
  const title = "Open or out of reach, and what it would take";
  return [
    h("h3", null, title),
    region(
      title,
      "",
      table({
        caption: title,
        head: [
          "Comparison",
          "Verdict",
          comparesNothing(facts) ? term("sigma", "σ") : term("z", facts.gate?.z),
          term("boundary"),
          term("power"),
          term("trials_needed", needs(facts).label),
          term("delta", "Certifiable δ"),
        ],
        texts: 2,
        key: (at) => keyOf(sorted[at]),
        rows: sorted
          .slice(0, MOST_LEFT)
          .map((pair) => [
            pairText(facts, pair),
            badge(pair.verdict, pair.word),
            comparesNothing(facts) ? score(facts, pair.sigma, 2) : number(pair.z),
            number(pair.boundary),
            percent(pair.power),
            needs(facts).of(pair),
            size(facts, pair.certifiable_delta),
          ]),
      }),
    ),
    sorted.length > MOST_LEFT
      ? h("p", { class: "note" }, `and ${plural(sorted.length - MOST_LEFT, "more", "more")}, which need more trials`)
      : null,
  ];
}
