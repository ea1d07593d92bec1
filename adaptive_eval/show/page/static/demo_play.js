// What the demonstration plays: worlds of known scores, trial by trial, and races of two equal models.

import { avg, bayes, boundary, chances, convergenceAt, passAtK } from "./demo_stats.js";
import { random, ranks, tauB, tiers, zScore } from "./demo_stats.js";

/** @typedef {{scores: number[], questions: number, difficulty: number, most: number, seed: number}} Choice */
/** @typedef {{c: number, kappa: number, start: number}} Rule */
/** @typedef {{a: [number, number], mu: [number, number], pass: number}} Estimate */
/** @typedef {{names: string[], answers: number[][][], truth: number[] | null}} World */
/** @typedef {{n: number, models: Estimate[], ranks: number[], tiers: number[], tau: number, tauPass: number}} Step */

export const DRAWS = 4;

/** @param {Choice} choice @returns {World} */
export function world(choice) {
  const draw = random(choice.seed);
  const answers = choice.scores.map((score) =>
    chances(score, choice.questions, choice.difficulty, draw).map((chance) =>
      Array.from({ length: choice.most }, () => (draw() < chance ? 1 : 0)),
    ),
  );
  return { names: choice.scores.map((_, at) => `model ${at + 1}`), answers, truth: choice.scores };
}

/** Right answers so far: a function that takes one trial more. @param {number[][]} own */
function counting(own) {
  const right = own.map(() => 0);
  return (/** @type {number} */ trial) => {
    own.forEach((trials, question) => (right[question] += trials[trial]));
    return right;
  };
}

/** Everything there is to see after each trial; `prior` as in `bayes`. @param {World} shown @returns {Step[]} */
export function history(shown, prior = 1) {
  const counters = shown.answers.map(counting);
  const most = shown.answers[0][0].length;
  const found = Array.from({ length: most }, (_, trial) => {
    const n = trial + 1;
    const models = counters.map((counted) => {
      const right = counted(trial);
      return { a: avg(right, n), mu: bayes(right, n, prior), pass: passAtK(right, n, DRAWS) };
    });
    return { n, models, ranks: ranks(models.map((one) => one.a[0])), tiers: tiers(models.map((one) => one.mu)) };
  });
  const gold = shown.truth ?? found[most - 1].models.map((one) => one.a[0]);
  return found.map((step) => ({
    ...step,
    tau:
      tauB(
        step.models.map((one) => one.a[0]),
        gold,
      ) || 0,
    tauPass:
      step.n < DRAWS
        ? NaN
        : tauB(
            step.models.map((one) => one.pass),
            gold,
          ) || 0,
  }));
}

/** convergence@n of the trials as they came, 0 for none. @param {Step[]} steps */
export function converged(steps) {
  return convergenceAt(steps.map((step) => step.ranks));
}

/** @typedef {{trials: number[], told: number}} Round */

/**
 * The same answers, asked for only while they are needed: after each round, neighbours in the ranking that the boundary
 * does not tell apart get a trial more, up to N. Each round says what every model has had, and how many neighbours are
 * told apart. @param {Step[]} steps @param {Rule} rule @returns {Round[]}
 */
export function onlyWhereOpen(steps, rule) {
  const most = steps.length;
  const trials = steps[0].models.map(() => 1);
  /** @type {Set<string>} */
  const apart = new Set();
  /** @type {Round[]} */
  const rounds = [];
  for (;;) {
    const now = trials.map((n, model) => steps[n - 1].models[model].a);
    const order = trials.map((_, model) => model).sort((one, other) => now[other][0] - now[one][0] || one - other);
    const pairs = order.slice(1).map((model, at) => [order[at], model].sort((one, other) => one - other));
    for (const [one, other] of pairs) {
      const share = 2 / most / (1 / trials[one] + 1 / trials[other]);
      if (Math.abs(zScore(now[one], now[other])) > boundary(share, rule)) apart.add(`${one} ${other}`);
    }
    const open = pairs.filter(([one, other]) => !apart.has(`${one} ${other}`));
    rounds.push({ trials: [...trials], told: pairs.length - open.length });
    const next = [...new Set(open.flat())].filter((model) => trials[model] < most);
    if (!next.length) return rounds;
    for (const model of next) trials[model] += 1;
  }
}

/** @typedef {{z: number[], peeked: number, sequential: number}} Race */

/**
 * Two models with the same chances, compared after every trial from the first look on: when each rule calls one of them
 * better, 0 for never. @param {number} seed @param {Rule} rule @returns {Race}
 */
export function race(seed, rule, questions = 30, most = 80, threshold = 1.645) {
  const draw = random(seed);
  const levels = chances(0.5, questions, 1.5, draw);
  const rights = [levels.map(() => 0), levels.map(() => 0)];
  /** @type {Race} */
  const found = { z: [], peeked: 0, sequential: 0 };
  for (let n = 1; n <= most; n += 1) {
    rights.forEach((right) => levels.forEach((level, at) => (right[at] += draw() < level ? 1 : 0)));
    const z = zScore(avg(rights[0], n), avg(rights[1], n));
    found.z.push(z);
    if (n / most < rule.start * (1 - 1e-9)) continue;
    if (!found.peeked && Math.abs(z) > threshold) found.peeked = n;
    if (!found.sequential && Math.abs(z) > boundary(n / most, rule)) found.sequential = n;
  }
  return found;
}

/** Many races: how often each rule called, and trials of a question it spent. @param {number} times @param {number} seed @param {Rule} rule */
export function races(times, seed, rule, most = 80) {
  const all = Array.from({ length: times }, (_, at) => race(seed * 100_003 + at, rule, 30, most));
  const told = (/** @type {"peeked" | "sequential"} */ name) => ({
    called: all.filter((one) => one[name]).length / times,
    trials: all.reduce((total, one) => total + (one[name] || most), 0) / times,
  });
  return { peeked: told("peeked"), sequential: told("sequential") };
}
