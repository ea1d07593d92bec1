// What the sections need to know of a run besides the view itself.

import { count, number, percent, plain } from "./text.js";

/** @typedef {ReturnType<typeof factsOf>} Facts */
/** @typedef {{inPercent: boolean}} Unit of scores */
/** @typedef {Unit & {low: number, high: number}} Scale of scores */

/**
 * What was to be decided, as far as the page reads it.
 * @typedef {{stopping?: {confidence?: number, delta?: number | null}, trials?: {draw?: number | null}}} Decisions
 */

/**
 * A comparison at one look; positive z favours the first of its series. `tie` is the |z| within which the pair would be
 * called tied: delta / sigma - boundary.
 * @typedef {{look: number, z: number | null, boundary: number | null, information: number | null, verdict: string,
 *   sigma: number, tie: number | null}} Point
 */

/** @typedef {{key: string, first: string, second: string | null, points: Point[]}} Series */
/** @typedef {PairRow & {needed: number | null}} Needing with the trials per question that it needs */
/** @typedef {Needing & {word: string}} Pair with its verdict in words */

export const SETTLED = new Set(["resolved", "tied"]);

/** The two-sided normal quantile of a 95% interval. */
export const WIDTH_95 = 1.959963984540054;

/** @param {string} verdict */
export function verdictWord(verdict) {
  return verdict.replaceAll("_", " ");
}

/** Everything that is derived from a view once. @param {PageView} view */
export function factsOf(view) {
  const { results, weights } = view;
  const rows = results?.models ?? [];
  const names = rows.length ? rows.map((row) => row.name) : view.models;
  const [low, high] = [Math.min(...weights), Math.max(...weights)];
  const decisions = /** @type {Decisions} */ (results?.decisions ?? view.configuration);
  const inPercent = low >= 0 && high <= 1;
  const gate = gateOf(view, inPercent, decisions);
  return {
    names,
    rankOf: new Map(names.map((name, rank) => [name, rank])),
    columnOf: new Map(view.models.map((name, column) => [name, column])),
    low,
    high,
    weights,
    inPercent,
    gate,
    over: gate ? "against" : "over",
    pairs: (results?.pairs ?? []).map((pair, at) => withWord({ ...pair, needed: view.needed[at] ?? null }, gate)),
    objective: view.objective,
    decisions,
    drawnFrom: decisions.trials?.draw ? view.questions.length : null,
    series: seriesOf(view, gate),
  };
}

/** The gate with its outcomes. @param {PageView} view @param {boolean} inPercent @param {Decisions} decisions */
function gateOf({ results, objective: { baseline } }, inPercent, decisions) {
  if (!results?.gate.length) return null;
  const delta = size({ inPercent }, decisions.stopping?.delta ?? 0);
  return {
    baseline,
    outcomes: new Map(results.gate.map((row) => [row.model, row.outcome])),
    z: results.groups.some((row) => row.gate) ? "z of the gate" : `z of (difference + ${delta})`,
  };
}

/** @typedef {ReturnType<typeof gateOf>} Gate */

/**
 * Under a gate the model stands first, and positive z speaks for a pass.
 * @template {{first: string, second: string | null, z: number | null}} P @param {P} pair @param {Gate} gate @returns {P}
 */
function modelFirst(pair, gate) {
  if (!gate || pair.first !== gate.baseline || pair.second === null) return pair;
  return { ...pair, first: pair.second, second: pair.first, z: pair.z === null ? null : -pair.z };
}

/** @param {Needing} pair @param {Gate} gate @returns {Pair} */
function withWord(pair, gate) {
  const word = verdictWord(pair.verdict);
  if (!gate) return { ...pair, word };
  const turned = modelFirst(pair, gate);
  const sampled_z = turned === pair || pair.sampled_z === null ? pair.sampled_z : -pair.sampled_z;
  const outcome = gate.outcomes.get(turned.first) ?? word;
  return { ...turned, sampled_z, rho: null, certifiable_delta: null, word: outcome };
}

/** How many trials would decide a comparison, or questions where each has one trial. @param {Facts} facts */
export function needs({ drawnFrom }) {
  return {
    label: drawnFrom === null ? "Trials per question needed" : "Questions needed",
    of: (/** @type {Pair} */ { needed: trials }) => {
      if (trials === null) return "–";
      const needed = Math.ceil(trials * (drawnFrom ?? 1));
      return count(needed) + (drawnFrom !== null && needed > drawnFrom ? ` (there are ${count(drawnFrom)})` : "");
    },
  };
}

/** A score with the digits that the terminal has for it. @param {Unit} facts @param {number | null} value */
export function score(facts, value, digits = 1) {
  return facts.inPercent ? percent(value, digits) : number(value, digits + 2);
}

/** A difference of scores. @param {Unit} facts @param {number | null} value */
export function difference(facts, value) {
  if (value === null) return number(null);
  const sign = value > 0 ? "+" : "";
  return facts.inPercent ? `${sign}${number(100 * value, 1)} points` : sign + number(value, 3);
}

/** The same without a sign. @param {Unit} facts @param {number | null} value */
export function size(facts, value) {
  return difference(facts, value).replace("+", "");
}

/** A value cut to the scale of scores. @param {Scale} facts @param {number} value */
export function clipped({ low, high }, value) {
  return Math.min(Math.max(value, low), high);
}

/** An interval cut to the scale. @param {Scale} facts @param {number | null} lo @param {number | null} hi */
export function interval(facts, lo, hi) {
  if (lo === null || hi === null) return number(null);
  return `${score(facts, clipped(facts, lo))} to ${score(facts, clipped(facts, hi))}`;
}

/** The same for narrow places: 61.9–67.4. @param {Scale} facts @param {number | null} lo @param {number | null} hi */
export function narrowInterval(facts, lo, hi) {
  return interval(facts, lo, hi).replaceAll("%", "").replace(" to ", "–");
}

/** The key of a comparison, whichever of the two is ahead. @param {string} a @param {string | null} b */
export function pairKey(a, b) {
  return JSON.stringify(b === null ? [a] : [a, b].sort());
}

/** The results of a run that has taken a look. @param {PageView} view */
export function resultsOf(view) {
  if (view.results === null) throw new Error("there are no results before the first look");
  return view.results;
}

/** The value under a key that must be there. @template V @param {Map<string, V>} map @param {string} key */
export function entry(map, key) {
  const value = map.get(key);
  if (value === undefined) throw new Error(`there is no ${plain(key, 60)}`);
  return value;
}

/** The last of a list that is not empty. @template V @param {readonly V[]} list @returns {V} */
export function last(list) {
  return list[list.length - 1];
}

/**
 * The posterior of a model, by its name, on a question, by its number.
 * @param {PageView} view @param {Facts} facts @param {string} model @param {number} question
 */
export function posteriorOf(view, facts, model, question) {
  return view.posteriors[view.posterior_of[entry(facts.columnOf, model)][question]];
}

/** Trials by category: `4 of 6 correct`, or `1 right, 2 half`. @param {PageView} view @param {number[]} counts */
export function countsText(view, counts) {
  const total = counts.reduce((sum, trials) => sum + trials, 0);
  if (!total) return "no trials";
  const best = view.weights.indexOf(Math.max(...view.weights));
  if (counts.length === 2) return `${count(counts[best])} of ${count(total)} ${categoryName(view, best)}`;
  const parts = counts.map((trials, category) => (trials ? `${count(trials)} ${categoryName(view, category)}` : ""));
  return parts.filter(Boolean).join(", ");
}

/** What the rubric calls a category. @param {PageView} view @param {number} category */
export function categoryName(view, category) {
  return plain(view.categories[category] ?? `category ${category}`, 40);
}

/** Trials of a model that no look has judged yet. @param {PageView} view @param {Facts} facts @param {string} model */
export function notJudged(view, facts, model) {
  const graded = view.trials[entry(facts.columnOf, model)].reduce((sum, trials) => sum + trials, 0);
  const look = view.looks.at(-1);
  const judged = look
    ? look.trials[look.models.indexOf(model)]
    : view.results?.models.find((row) => row.name === model)?.trials;
  return Math.max(0, graded - (judged ?? 0));
}

/** A comparison in words. @param {Facts} facts @param {{first: string, second: string | null}} pair */
export function pairText(facts, { first, second }) {
  return `${plain(first, 40)} ${second === null ? againstText(facts) : `${facts.over} ${plain(second, 40)}`}`;
}

/** z, and what it has to reach where the pair is not decided. @param {PairRow} pair */
export function zText({ z, boundary, verdict }) {
  if (z === null || verdict === "blocked") return "";
  return `z ${number(z)} ${SETTLED.has(verdict) || boundary === null ? "now" : `of ${number(boundary)}`}`;
}

/** What a model by itself is compared with. @param {Facts} facts */
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
 * Every comparison of any look, as a line over the looks: positive z favours `first`, who is ahead now.
 * @param {PageView} view @param {Gate} gate
 */
function seriesOf(view, gate) {
  /** @type {Map<string, Series>} */
  const series = new Map();
  const delta = gate ? 0 : (view.configuration.stopping?.delta ?? 0);
  for (const { look, models, sigmas, pairs } of view.looks) {
    const sigmaOf = new Map(models.map((name, index) => [name, sigmas[index] ?? NaN]));
    for (const row of pairs) {
      const { first, second, z, boundary, information, verdict } = modelFirst(row, gate);
      const key = pairKey(first, second);
      const line = series.get(key) ?? { key, first, second, points: [] };
      series.set(key, line);
      if (first !== line.first) turn(line);
      const sigma = Math.hypot(entry(sigmaOf, first), second === null ? 0 : entry(sigmaOf, second));
      const tie = delta > 0 && boundary !== null && sigma > 0 ? delta / sigma - boundary : null;
      line.points.push({ look, z, boundary, information, verdict, sigma, tie });
    }
  }
  return series;
}

/** @param {Series} line */
function turn(line) {
  if (line.second !== null) [line.first, line.second] = [line.second, line.first];
  for (const point of line.points) if (point.z !== null) point.z = -point.z;
}
