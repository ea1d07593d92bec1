// What the demonstration plays: models of known scores, trial by trial, and races of two equal models.

import { avg, bayes, boundary, chances, convergenceAt, orderOf } from "./demo_stats.js";
import { passAtK, random, ranks, zScore } from "./demo_stats.js";
/** @import { Estimate } from "./demo_stats.js" */

/** @typedef {{scores: number[], questions: number, difficulty: number, most: number, seed: number}} Choice */
/** @typedef {{c: number, kappa: number, start: number}} Rule */
/** @typedef {{names: string[], answers: number[][][], truth: number[] | null}} World */
/** @typedef {{a: Estimate, mu: Estimate, pass: number}} Scores */
/** @typedef {{n: number, models: Scores[], ranks: number[], order: number[]}} Step */
/** @typedef {{trials: number[], told: number}} Round with the number of neighbours that are told apart */

export const DRAWS = 4;

/** @param {Choice} choice @returns {World} */
export function world({ scores, questions, difficulty, most, seed }) {
  const draw = random(seed);
  const answers = scores.map((score) =>
    chances(score, questions, difficulty, draw).map((chance) =>
      Array.from({ length: most }, () => Number(draw() < chance)),
    ),
  );
  return { names: scores.map((_, model) => `model ${model + 1}`), answers, truth: scores };
}

/** Everything there is to see after each trial; `prior` as in `bayes`. @param {World} world @returns {Step[]} */
export function history({ answers }, prior = 1) {
  const rights = answers.map((questions) => questions.map(() => 0));
  return answers[0][0].map((_, trial) => {
    const n = trial + 1;
    const models = rights.map((right, model) => {
      answers[model].forEach((trials, question) => (right[question] += trials[trial]));
      return { a: avg(right, n), mu: bayes(right, n, prior), pass: passAtK(right, n, DRAWS) };
    });
    const averages = models.map(({ a }) => a);
    return { n, models, ranks: ranks(averages.map(([mean]) => mean)), order: orderOf(averages) };
  });
}

/** convergence@n of the trials as they came, 0 for none. @param {Step[]} steps */
export function converged(steps) {
  return convergenceAt(steps.map((step) => step.ranks));
}

/**
 * The same answers, asked for only while they are needed: after each round, neighbours in the ranking that the boundary
 * does not tell apart get a trial more, up to N.
 * @param {Step[]} steps @param {Rule} rule @returns {Round[]}
 */
export function onlyWhereOpen(steps, rule) {
  const most = steps.length;
  const trials = steps[0].models.map(() => 1);
  /** @type {Set<string>} */
  const apart = new Set();
  /** @type {Round[]} */
  const rounds = [];
  for (;;) {
    const averages = trials.map((n, model) => steps[n - 1].models[model].a);
    const order = orderOf(averages);
    const pairs = order.slice(1).map((worse, place) => [order[place], worse].sort((a, b) => a - b));
    for (const [a, b] of pairs) {
      const share = 2 / most / (1 / trials[a] + 1 / trials[b]);
      if (Math.abs(zScore(averages[a], averages[b])) > boundary(share, rule)) apart.add(`${a} ${b}`);
    }
    const open = pairs.filter(([a, b]) => !apart.has(`${a} ${b}`));
    rounds.push({ trials: [...trials], told: pairs.length - open.length });
    const next = [...new Set(open.flat())].filter((model) => trials[model] < most);
    if (!next.length) return rounds;
    for (const model of next) trials[model] += 1;
  }
}

/** @typedef {{z: number[], peeked: number, sequential: number}} Race */

/**
 * Two models with the same chances, compared after every trial from the first look on: when each rule calls one of them
 * better, 0 for never.
 * @param {number} seed @param {Rule} rule @returns {Race}
 */
export function race(seed, rule, questions = 30, most = 80, threshold = 1.645) {
  const draw = random(seed);
  const levels = chances(0.5, questions, 1.5, draw);
  const rights = [levels.map(() => 0), levels.map(() => 0)];
  /** @type {Race} */
  const calls = { z: [], peeked: 0, sequential: 0 };
  for (let n = 1; n <= most; n += 1) {
    for (const right of rights) levels.forEach((level, question) => (right[question] += Number(draw() < level)));
    const z = zScore(avg(rights[0], n), avg(rights[1], n));
    calls.z.push(z);
    if (n / most < rule.start * (1 - 1e-9)) continue;
    if (!calls.peeked && Math.abs(z) > threshold) calls.peeked = n;
    if (!calls.sequential && Math.abs(z) > boundary(n / most, rule)) calls.sequential = n;
  }
  return calls;
}

/**
 * Many races: how often each rule called a winner, and trials of a question until then.
 * @param {number} times @param {number} seed @param {Rule} rule
 */
export function races(times, seed, rule, most = 80) {
  const all = Array.from({ length: times }, (_, index) => race(seed * 100_003 + index, rule, 30, most));
  const summary = (/** @type {"peeked" | "sequential"} */ name) => ({
    called: all.filter((race) => race[name]).length / times,
    trials: all.reduce((total, race) => total + (race[name] || most), 0) / times,
  });
  return { peeked: summary("peeked"), sequential: summary("sequential") };
}
