// What the sections need to know of a run besides the view itself.

import { count, number, percent, plain } from "./text.js";

export const VERDICTS = ["resolved", "tied", "open", "out_of_reach", "blocked"];
export const SETTLED = new Set(["resolved", "tied"]);
const WORDS = { out_of_reach: "out of reach" };

/** The two-sided normal quantile of a 95% interval. */
export const WIDTH_95 = 1.959963984540054;

export function verdictWord(verdict) {
  return WORDS[verdict] ?? verdict;
}

/** Everything that is derived from a view once. */
export function factsOf(view) {
  const results = view.results;
  const rows = results?.models ?? [];
  const names = rows.length ? rows.map((row) => row.name) : view.models;
  const low = Math.min(...view.weights);
  const high = Math.max(...view.weights);
  return {
    names,
    rankOf: new Map(names.map((name, rank) => [name, rank])),
    columnOf: new Map(view.models.map((name, column) => [name, column])),
    low,
    high,
    inPercent: low >= 0 && high <= 1,
    decisions: results?.decisions ?? view.configuration,
    series: seriesOf(view),
    clock: clockOf(view),
    verdicts: counted(results?.pairs ?? []),
    fixed: fixedCost(view),
  };
}

/** A score with the digits that the display has for it. */
export function score(facts, value, digits = 1) {
  return facts.inPercent ? percent(value, digits) : number(value, digits + 2);
}

/** A difference of scores: points of a percent scale. */
export function difference(facts, value) {
  if (value === null) return number(null);
  const sign = value > 0 ? "+" : "";
  return facts.inPercent ? `${sign}${number(100 * value, 1)} points` : sign + number(value, 3);
}

/** An interval cut to the scale, where alone scores can be. */
export function interval(facts, lo, hi) {
  if (lo === null || hi === null) return number(null);
  return `${score(facts, Math.max(lo, facts.low))} to ${score(facts, Math.min(hi, facts.high))}`;
}

/** The same for narrow places: 61.9–67.4. */
export function narrowInterval(facts, lo, hi) {
  if (lo === null || hi === null) return number(null);
  const bare = (value) => score(facts, value).replace("%", "");
  return `${bare(Math.max(lo, facts.low))}–${bare(Math.min(hi, facts.high))}`;
}

/** What names a comparison, whichever of the two is ahead. */
export function pairKey(one, other) {
  return JSON.stringify(other === null ? [one] : [one, other].sort());
}

/** A comparison in words. */
export function pairText(facts, pair, longest = 40) {
  const better = plain(pair.better, longest);
  return pair.worse === null ? `${better} ${againstText(facts)}` : `${better} over ${plain(pair.worse, longest)}`;
}

/** z beside its boundary; where a call stands though z has come back since, z alone. */
export function zText(pair) {
  if (pair.z === null || pair.verdict === "blocked") return "";
  if (pair.boundary === null) return `z ${number(pair.z)}`;
  return pair.verdict === "resolved" && Math.abs(pair.z) < pair.boundary
    ? `z ${number(pair.z)} now`
    : `z ${number(pair.z)} of ${number(pair.boundary)}`;
}

/** Whether a call was made for `better`: it was not where the two have changed places since. */
export function calledForBetter(view, pair) {
  return !view.results.reversals.some(([better, worse]) => better === pair.better && worse === pair.worse);
}

/** What lone models are held against. */
export function againstText(facts) {
  const objective = facts.decisions.objective ?? {};
  if (objective.kind === "threshold") return `against ${score(facts, objective.value)}`;
  return objective.kind === "precision" ? `to ± ${score(facts, objective.half_width)}` : "";
}

/** The objective asks for narrow intervals, and compares with nothing. */
export function isPrecision(facts) {
  return facts.decisions.objective?.kind === "precision";
}

/** What the objective decides on: comparisons, or scores by themselves. */
export function unit(facts) {
  return isPrecision(facts) ? "score" : "comparison";
}

/** A trial count beside what it would be in a fixed design; earlier starts may have had a larger one. */
export function shareOfFixed(trials, fixed) {
  if (trials > fixed) return `trials.max now allows ${count(fixed)}`;
  return `${percent(trials / fixed)} of the ${count(fixed)} of a fixed design`;
}

function counted(pairs) {
  const counts = Object.fromEntries(VERDICTS.map((verdict) => [verdict, 0]));
  for (const pair of pairs) counts[pair.verdict] += 1;
  return counts;
}

/**
 * Every comparison that was ever looked at, as a line over the looks: positive z favours `first`, who is ahead now.
 * `tie` is the |z| within which the pair would be called tied: delta / sigma - boundary.
 */
function seriesOf(view) {
  const series = new Map();
  const delta = view.configuration.stopping?.delta ?? 0;
  for (const look of view.looks) {
    const place = new Map(look.models.map((name, at) => [name, at]));
    for (const pair of look.pairs) {
      const key = pairKey(pair.better, pair.worse);
      if (!series.has(key)) series.set(key, { key, first: pair.better, second: pair.worse, points: [] });
      const line = series.get(key);
      if (pair.better !== line.first) turn(line);
      const sigma = Math.hypot(
        look.sigmas[place.get(pair.better)] ?? NaN,
        pair.worse === null ? 0 : (look.sigmas[place.get(pair.worse)] ?? NaN),
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

function turn(line) {
  [line.first, line.second] = [line.second, line.first];
  for (const point of line.points) if (point.z !== null) point.z = -point.z;
}

/** Seconds of activity at a moment: the time between a stop and the resume after it does not count. */
function clockOf(view) {
  const starts = view.events
    .filter((event) => event.kind === "started" || event.kind === "resumed")
    .map((event) => event.at);
  const moments = [...view.spending.map((one) => one.at), ...view.events.map((one) => one.at)].sort((a, b) => a - b);
  const origin = starts[0] ?? moments[0] ?? 0;
  const pauses = starts
    .slice(1)
    .map((at) => ({ at, idle: at - Math.max(origin, ...moments.filter((one) => one < at).slice(-1)) }));
  const active = (at) => at - origin - pauses.reduce((sum, pause) => sum + (pause.at <= at ? pause.idle : 0), 0);
  return { active: (at) => Math.max(0, active(at)), resumes: pauses.map((pause) => Math.max(0, active(pause.at))) };
}

/** What the maximum of trials for everyone would have cost. */
function fixedCost(view) {
  const { fixed_trials, fixed_tokens, fixed_usd, fixed_gpu_seconds } = view.results?.cost ?? {};
  return { trials: fixed_trials ?? 0, tokens: fixed_tokens, usd: fixed_usd, gpu_seconds: fixed_gpu_seconds };
}
