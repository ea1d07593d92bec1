// What a run has found, in one sentence.

import { h } from "./dom.js";
import { calledForBetter, resultsOf, score } from "./facts.js";
import { listed, name, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { PairRow, RunView } from "./sent.js" */

/** The finding in one sentence. @param {RunView} view @param {Facts} facts @returns {Child} */
export function found(view, facts) {
  const { models, pairs } = resultsOf(view);
  const scored = models.filter((row) => row.score !== null);
  if (!scored.length) return "No model has a score yet.";
  const { compares, value, baseline, first: wanted } = facts.objective;
  if (!compares) {
    const done = facts.verdicts.resolved;
    return `${done} of ${plural(pairs.length, "score")} ${done === 1 ? "is" : "are"} known as precisely as was asked.`;
  }
  if (value !== null) return aboveValue(view, facts);
  if (view.results?.gate.length) return throughGate(view);
  if (baseline !== null) return againstBaseline(view, facts);
  if (wanted !== null)
    return ["First come ", joined(scored.slice(0, wanted).map((row) => h("b", null, name(row.name, 40)))), "."];
  if (scored.length === 1) return [h("b", null, name(scored[0].name)), " is the only model."];
  const first = scored.filter((row) => row.tier === scored[0].tier);
  const shown = first.slice(0, 4).map((row) => h("b", null, name(row.name, 40)));
  const lead = joined(first.length > 4 ? [...shown, `${first.length - 4} more`] : shown);
  return first.length === 1 ? [lead, " is first."] : [lead, " share the first tier."];
}

/** @param {Child[]} nodes @returns {Child[]} */
function joined(nodes) {
  return nodes.flatMap((node, at) => (at === 0 ? [node] : [at === nodes.length - 1 ? " and " : ", ", node]));
}

/** @param {RunView} view @param {Facts} facts */
function aboveValue(view, facts) {
  const { pairs } = resultsOf(view);
  const called = pairs.filter((pair) => pair.verdict === "resolved");
  const above = called.filter((pair) => (pair.z ?? 0) > 0 === calledForBetter(view, pair)).length;
  const value = score(facts, facts.objective.value);
  const open = pairs.length - called.length;
  return `${plural(above, "model")} above ${value}, ${called.length - above} below it, ${open} not yet known to be either.`;
}

/** @param {RunView} view */
function throughGate(view) {
  const { gate } = resultsOf(view);
  const counted = ["PASS", "FAIL", "UNDECIDED"].map((outcome) => [
    gate.filter((row) => row.outcome === outcome).length,
    outcome,
  ]);
  return [
    "Gate against ",
    h("b", null, name(gate[0].baseline, 40)),
    ": ",
    listed(counted.filter(([many]) => many).map(([many, outcome]) => `${many} ${outcome}`)),
    ".",
  ];
}

/** @param {RunView} view @param {Facts} facts */
function againstBaseline(view, facts) {
  const { pairs } = resultsOf(view);
  const baseline = facts.objective.baseline ?? "";
  const called = pairs.filter((pair) => pair.verdict === "resolved");
  const winner = (/** @type {PairRow} */ pair) => (calledForBetter(view, pair) ? pair.better : pair.worse);
  const better = called.filter((pair) => winner(pair) !== baseline).length;
  const others = [
    [called.length - better, "worse"],
    [facts.verdicts.tied, "as good within delta"],
    [pairs.length - called.length - facts.verdicts.tied, "not decided"],
  ];
  return [
    `${plural(better, "model")} better than `,
    h("b", null, name(baseline, 40)),
    ...others.filter(([many]) => many).map(([many, what]) => `, ${many} ${what}`),
    ".",
  ];
}
