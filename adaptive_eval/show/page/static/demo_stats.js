// The statistics of the demonstration, on counts of right answers: the same numbers as the Python package's scorio.

import { sumOf } from "./parts.js";

/** Right answers to each of M questions, of n trials of each. @typedef {number[]} Rights */
/** The mean of a score and its standard error. @typedef {[mean: number, sigma: number]} Estimate */

/** Random numbers in [0, 1) from a seed, the same in every browser (mulberry32). @param {number} seed */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * Chances of M questions whose mean is exact: normal on the logit scale, as wide as the difficulty spreads.
 * @param {number} mean @param {number} questions @param {number} difficulty @param {() => number} draw
 */
export function chances(mean, questions, difficulty, draw) {
  const levels = Array.from({ length: questions }, () => {
    const [radius, angle] = [Math.sqrt(-2 * Math.log(1 - draw())), 2 * Math.PI * draw()];
    return difficulty * radius * Math.cos(angle);
  });
  const shifted = (/** @type {number} */ shift) => levels.map((level) => 1 / (1 + Math.exp(-(level + shift))));
  let [low, high] = [-60, 60];
  for (let step = 0; step < 100; step += 1) {
    const middle = (low + high) / 2;
    if (sumOf(shifted(middle), Number) / questions < mean) low = middle;
    else high = middle;
  }
  return shifted((low + high) / 2);
}

/**
 * Bayes@N; the prior is a number of imagined answers of each kind, 1 where it is uniform.
 * @param {Rights} right @param {number} n @returns {Estimate}
 */
export function bayes(right, n, prior = 1) {
  const total = n + 2 * prior;
  const means = right.map((answers) => (answers + prior) / total);
  const spread = sumOf(means, (mean) => mean * (1 - mean)) / (total + 1);
  return [sumOf(means, Number) / right.length, Math.sqrt(spread) / right.length];
}

/** The same on the average scale. @param {Rights} right @param {number} n @returns {Estimate} */
export function avg(right, n) {
  return [sumOf(right, Number) / (n * right.length), (bayes(right, n)[1] * (n + 2)) / n];
}

/** Pass@k without bias; NaN before there are k trials. @param {Rights} right @param {number} n @param {number} k */
export function passAtK(right, n, k) {
  if (n < k) return NaN;
  const missed = right.map((answers) => {
    let chance = 1;
    for (let draw = 0; draw < k; draw += 1) chance *= Math.max(0, n - answers - draw) / (n - draw);
    return chance;
  });
  return 1 - sumOf(missed, Number) / right.length;
}

/** z of the first estimate against the second. @param {Estimate} a @param {Estimate} b */
export function zScore(a, b) {
  const scale = Math.hypot(a[1], b[1]);
  return scale > 0 ? (a[0] - b[0]) / scale : 0;
}

const ROUNDING = 1e-12;

/** Competition ranks, 1 for the best; equal scores share one. @param {number[]} scores */
export function ranks(scores) {
  const slack = ROUNDING * Math.max(...scores.map(Math.abs));
  return scores.map((score) => 1 + scores.filter((better) => better - score > slack).length);
}

/** Models from the best to the worst. @param {Estimate[]} estimates */
export function orderOf(estimates) {
  const models = estimates.map((_, model) => model);
  return models.sort((a, b) => estimates[b][0] - estimates[a][0] || a - b);
}

/** The n from which on the ranks are those of the last for good; 0 for none before it. @param {number[][]} history */
export function convergenceAt(history) {
  const gold = String(history.at(-1));
  let from = history.length;
  while (from > 0 && String(history[from - 1]) === gold) from -= 1;
  return from + 1 < history.length ? from + 1 : 0;
}

/**
 * The boundary c t^-kappa that holds at any looks; infinite before its start.
 * @param {number} t @param {{c: number, kappa: number, start: number}} rule
 */
export function boundary(t, rule) {
  return t < rule.start * (1 - 1e-9) ? Infinity : rule.c * t ** -rule.kappa;
}
