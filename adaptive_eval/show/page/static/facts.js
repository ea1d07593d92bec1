// What the sections need to know of a run besides the view itself.

import { count, number, percent, plain } from "./text.js";

/** @typedef {ReturnType<typeof factsOf>} Facts */

/**
 * What was to be decided, as far as the page reads it.
 * @typedef {object} Decisions
 * @property {{confidence?: number, delta?: number | null}} [stopping]
 * @property {Record<string, number | null>} [budget]
 * @property {{draw?: number | null}} [trials]
 */

/**
 * A comparison at one look; positive z favours the first of its series.
 * @typedef {object} Point
 * @property {number} look
 * @property {number | null} z
 * @property {number | null} boundary
 * @property {number | null} information
 * @property {string} verdict
 * @property {number} sigma
 * @property {number | null} tie
 */

/** @typedef {{key: string, first: string, second: string | null, points: Point[]}} Series */
/** @typedef {PairRow & {word: string}} Pair with its verdict in words */

/** @type {("resolved" | "tied" | "undecided_by_labels" | "open" | "out_of_reach" | "blocked")[]} */
export const VERDICTS = ["resolved", "tied", "undecided_by_labels", "open", "out_of_reach", "blocked"];
export const SETTLED = new Set(["resolved", "tied"]);
/** @type {Record<string, string>} */
const WORDS = { out_of_reach: "out of reach", undecided_by_labels: "undecided by labels" };

/** The two-sided normal quantile of a 95% interval. */
export const WIDTH_95 = 1.959963984540054;

/** @param {string} verdict */
export function verdictWord(verdict) {
  return WORDS[verdict] ?? verdict;
}

/** Everything that is derived from a view once. @param {RunView} view */
export function factsOf(view) {
  const results = view.results;
  const rows = results?.models ?? [];
  const names = rows.length ? rows.map((row) => row.name) : view.models;
  const low = Math.min(...view.weights);
  const high = Math.max(...view.weights);
  const decisions = /** @type {Decisions} */ (results?.decisions ?? view.configuration);
  const inPercent = low >= 0 && high <= 1;
  const gate = gateOf(view, inPercent, decisions);
  return {
    names,
    rankOf: new Map(names.map((name, rank) => [name, rank])),
    columnOf: new Map(view.models.map((name, column) => [name, column])),
    low,
    high,
    weights: view.weights,
    inPercent,
    gate,
    over: gate ? "against" : "over",
    pairs: (results?.pairs ?? []).map((pair) => told(pair, gate)),
    objective: view.objective,
    decisions,
    drawnFrom: decisions.trials?.draw ? view.questions.length : null,
    series: seriesOf(view, gate),
    serverTimeIsPaid: serverTimeIsPaid(view),
    launches: view.configuration.models.some((/** @type {Record<string, any>} */ model) => model.launch),
  };
}

/**
 * What a gate judges, and its outcome for each model.
 * @param {RunView} view @param {boolean} inPercent @param {Decisions} decisions
 */
function gateOf({ results, objective: { baseline } }, inPercent, decisions) {
  if (!results?.gate.length) return null;
  const several = results.groups.some((row) => row.gate);
  const delta = size({ inPercent }, decisions.stopping?.delta ?? 0);
  return {
    baseline,
    outcomes: new Map(results.gate.map((row) => [row.model, row.outcome])),
    z: several ? "z of the gate" : `z of (difference + ${delta})`,
  };
}

/** @typedef {ReturnType<typeof gateOf>} Gate */

/**
 * Under a gate the model stands first, and positive z speaks for a pass.
 * @template {{better: string, worse: string | null, z: number | null}} P @param {P} pair @param {Gate} gate @returns {P}
 */
function modelFirst(pair, gate) {
  if (!gate || pair.better !== gate.baseline || pair.worse === null) return pair;
  return { ...pair, better: pair.worse, worse: pair.better, z: pair.z === null ? null : -pair.z };
}

/** @param {PairRow} pair @param {Gate} gate @returns {Pair} */
function told(pair, gate) {
  const word = verdictWord(pair.verdict);
  if (!gate) return { ...pair, word };
  const turned = modelFirst(pair, gate);
  const sampled = turned === pair || pair.sampled_z === null ? pair.sampled_z : -pair.sampled_z;
  const own = { sampled_z: sampled, rho: null, certifiable_delta: null };
  return { ...turned, ...own, word: gate.outcomes.get(turned.better) ?? word };
}

/** What would call a comparison, and how many: of drawn questions there is one trial each. @param {Facts} facts */
export function needs(facts) {
  const each = facts.drawnFrom ?? 1;
  return {
    label: facts.drawnFrom === null ? "Trials per question it would need" : "Questions it would need",
    of: (/** @type {PairRow} */ pair) => {
      if (pair.trials_needed === null) return "–";
      const needed = Math.ceil(pair.trials_needed * each);
      const there =
        facts.drawnFrom !== null && needed > facts.drawnFrom ? ` (there are ${count(facts.drawnFrom)})` : "";
      return count(needed) + there;
    },
  };
}

/** A score with the digits that the display has for it. @param {Facts} facts @param {number | null} value */
export function score(facts, value, digits = 1) {
  return facts.inPercent ? percent(value, digits) : number(value, digits + 2);
}

/** A difference of scores: points of a percent scale. @param {{inPercent: boolean}} facts @param {number | null} value */
export function difference(facts, value) {
  if (value === null) return number(null);
  const sign = value > 0 ? "+" : "";
  return facts.inPercent ? `${sign}${number(100 * value, 1)} points` : sign + number(value, 3);
}

/** The same without a sign. @param {{inPercent: boolean}} facts @param {number | null} value */
export function size(facts, value) {
  return difference(facts, value).replace("+", "");
}

/**
 * An interval cut to the scale, where alone scores can be.
 * @param {Facts} facts @param {number | null} lo @param {number | null} hi
 */
export function interval(facts, lo, hi) {
  if (lo === null || hi === null) return number(null);
  return `${score(facts, Math.max(lo, facts.low))} to ${score(facts, Math.min(hi, facts.high))}`;
}

/** The same for narrow places: 61.9–67.4. @param {Facts} facts @param {number | null} lo @param {number | null} hi */
export function narrowInterval(facts, lo, hi) {
  if (lo === null || hi === null) return number(null);
  const bare = (/** @type {number} */ value) => score(facts, value).replace("%", "");
  return `${bare(Math.max(lo, facts.low))}–${bare(Math.min(hi, facts.high))}`;
}

/** What names a comparison, whichever of the two is ahead. @param {string} one @param {string | null} other */
export function pairKey(one, other) {
  return JSON.stringify(other === null ? [one] : [one, other].sort());
}

/** The results of a run that has taken a look. @param {RunView} view */
export function resultsOf(view) {
  if (view.results === null) throw new Error("there are no results before the first look");
  return view.results;
}

/**
 * What a map has under a key that must be there.
 * @template V @param {Map<string, V>} map @param {string} key
 */
export function entry(map, key) {
  const found = map.get(key);
  if (found === undefined) throw new Error(`there is no ${plain(key, 60)}`);
  return found;
}

/** The last of a list that is not empty. @template V @param {readonly V[]} list @returns {V} */
export function last(list) {
  return list[list.length - 1];
}

/**
 * What is known of a model, by its name, on a question, by its number.
 * @param {RunView} view @param {Facts} facts @param {string} model @param {number} question
 */
export function posteriorOf(view, facts, model, question) {
  return view.posteriors[view.posterior_of[entry(facts.columnOf, model)][question]];
}

/**
 * Trials by category in words: `4 of 6 correct`, or `1 right, 2 half, 3 wrong`.
 * @param {RunView} view @param {number[]} counts
 */
export function countsText(view, counts) {
  const total = counts.reduce((sum, one) => sum + one, 0);
  if (!total) return "no trials";
  const best = view.weights.indexOf(Math.max(...view.weights));
  if (counts.length === 2) return `${count(counts[best])} of ${count(total)} ${categoryName(view, best)}`;
  return counts
    .map((many, at) => (many ? `${count(many)} ${categoryName(view, at)}` : null))
    .filter(Boolean)
    .join(", ");
}

/** What the rubric calls a category. @param {RunView} view @param {number} category */
export function categoryName(view, category) {
  return plain(view.categories[category] ?? `category ${category}`, 40);
}

/** Trials of a model that no look has judged yet. @param {RunView} view @param {Facts} facts @param {string} model */
export function notJudged(view, facts, model) {
  const graded = view.trials[entry(facts.columnOf, model)].reduce((sum, one) => sum + one, 0);
  const look = view.looks.at(-1);
  const judged = look
    ? look.trials[look.models.indexOf(model)]
    : view.results?.models.find((row) => row.name === model)?.trials;
  return Math.max(0, graded - (judged ?? 0));
}

/** A comparison in words. @param {Facts} facts @param {{better: string, worse: string | null}} pair */
export function pairText(facts, pair, longest = 40) {
  const better = plain(pair.better, longest);
  return `${better} ${pair.worse === null ? againstText(facts) : `${facts.over} ${plain(pair.worse, longest)}`}`;
}

/** z, and what it has to reach where the pair is not decided. @param {PairRow} pair */
export function zText(pair) {
  if (pair.z === null || pair.verdict === "blocked") return "";
  if (SETTLED.has(pair.verdict) || pair.boundary === null) return `z ${number(pair.z)} now`;
  return `z ${number(pair.z)} of ${number(pair.boundary)}`;
}

/** What lone models are held against. @param {Facts} facts */
export function againstText(facts) {
  const { value, half_width: width } = facts.objective;
  if (value !== null) return `against ${score(facts, value)}`;
  return width === null ? "" : `to ± ${score(facts, width)}`;
}

/** Each score is judged by itself, and compared with nothing. @param {Facts} facts */
export function comparesNothing(facts) {
  return !facts.objective.compares;
}

/** What the objective decides on: comparisons, or scores by themselves. @param {Facts} facts */
export function unit(facts) {
  return comparesNothing(facts) ? "score" : "comparison";
}

/**
 * Every comparison that was ever looked at, as a line over the looks: positive z favours `first`, who is ahead now.
 * `tie` is the |z| within which the pair would be called tied: delta / sigma - boundary.
 * @param {RunView} view @param {Gate} gate @returns {Map<string, Series>}
 */
function seriesOf(view, gate) {
  /** @type {Map<string, Series>} */
  const series = new Map();
  const delta = gate ? 0 : (view.configuration.stopping?.delta ?? 0);
  for (const look of view.looks) {
    const place = new Map(look.models.map((name, at) => [name, at]));
    for (const seen of look.pairs) {
      const pair = modelFirst(seen, gate);
      const key = pairKey(pair.better, pair.worse);
      if (!series.has(key)) series.set(key, { key, first: pair.better, second: pair.worse, points: [] });
      const line = entry(series, key);
      if (pair.better !== line.first) turn(line);
      const sigma = Math.hypot(
        look.sigmas[entry(place, pair.better)] ?? NaN,
        pair.worse === null ? 0 : (look.sigmas[entry(place, pair.worse)] ?? NaN),
      );
      const tie = delta > 0 && pair.boundary !== null && sigma > 0 ? delta / sigma - pair.boundary : null;
      line.points.push({
        look: look.look,
        z: pair.z,
        boundary: pair.boundary,
        information: pair.information,
        verdict: pair.verdict,
        sigma,
        tie,
      });
    }
  }
  return series;
}

/** @param {Series} line */
function turn(line) {
  if (line.second !== null) [line.first, line.second] = [line.second, line.first];
  for (const point of line.points) if (point.z !== null) point.z = -point.z;
}

/** Whether the time of servers is what somebody pays, and is known. @param {RunView} view */
function serverTimeIsPaid({ results }) {
  if (!results || results.cost.server_seconds === null) return false;
  return results.servers.length > 0 || (results.cost.server_gpu_seconds ?? 0) > 0;
}
