// The stopping rule at work: z of each comparison against its boundary, look by look.

import { h, on } from "./dom.js";
import { comparesNothing, entry, pairKey, unit } from "./facts.js";
import { blocks } from "./parts.js";
import { term } from "./terms.js";
import { plural } from "./text.js";
import { hasGap, large, small } from "./walk.js";
/** @import { Facts, Pair, Point } from "./facts.js" */
/** @import { Section } from "./parts.js" */

const MAX_PANELS = 24;

/** @type {Section} */
export const stopping = {
  id: "stopping",
  title: "The stopping rule at work",
  isThere: ({ facts }) => facts.pairs.length > 0,
  render(state) {
    const { facts, ui } = state;
    // after a resume with other settings the results may be ahead of the looks, which are taken anew
    const pairs = facts.pairs.filter((pair) => facts.series.has(keyOf(pair)));
    if (!pairs.length) return [h("p", { class: "quiet" }, "The looks are taken anew when the run goes on.")];
    const chosen = pairs.find((pair) => keyOf(pair) === ui.pair) ?? mostTelling(pairs, facts);
    const shown = ui.allPairs ? pairs : pairs.slice(0, MAX_PANELS);
    const panels = shown.map((pair) => small(facts, entry(facts.series, keyOf(pair)), pair, pair === chosen));
    const more = { type: "button", class: "more", "data-all-pairs": "" };
    return [
      explanation(facts, entry(facts.series, keyOf(chosen)).points),
      large(state, entry(facts.series, keyOf(chosen)), chosen),
      h("div", { class: "panels" }, panels),
      shown.length < pairs.length ? h("button", more, `Show all ${plural(pairs.length, unit(facts))}`) : null,
      blocks(state.view, "comparisons"),
    ];
  },
  wire(root, state) {
    on(root, "click", "[data-pair]", (button) => {
      state.ui.pair = button.dataset.pair;
      state.refresh("stopping");
    });
    on(root, "click", "[data-all-pairs]", () => {
      state.ui.allPairs = true;
      state.refresh("stopping");
    });
  },
};

/** @param {PairRow} pair */
function keyOf(pair) {
  return pairKey(pair.first, pair.second);
}

/** The first comparison that is open, else the one that was decided last. @param {Pair[]} pairs @param {Facts} facts */
function mostTelling(pairs, facts) {
  const decided = (/** @type {Pair} */ pair) =>
    entry(facts.series, keyOf(pair)).points.find((point) => point.verdict !== "open")?.look ?? 0;
  const open = pairs.find((pair) => pair.verdict === "open");
  return open ?? pairs.reduce((latest, pair) => (decided(pair) > decided(latest) ? pair : latest));
}

/** @param {Facts} facts @param {Point[]} points */
function explanation(facts, points) {
  if (comparesNothing(facts))
    return h("p", null, "A score is known once half of its 95% interval is within the width that was asked for.");
  const canTie = !facts.gate && (facts.decisions.stopping?.delta ?? 0) > 0;
  const wedge = " Within the inner wedge, which opens as the difference becomes known to within ";
  return h("p", null, [
    ["A comparison is decided at the first ", term("look", "look"), " at which |", term("z", facts.gate?.z)],
    ["| exceeds the ", term("boundary", "boundary"), "."],
    canTie ? [wedge, term("delta", "delta"), ", the pair is tied."] : null,
    " Decisions and ties stand.",
    hasGap(points) ? " A gap: the two were not compared at those looks." : "",
  ]);
}
