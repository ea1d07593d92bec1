// The demonstration: choose models, sample trial by trial, and see what moves. It needs no server and no network.

import { intervalPlot, line, lineColour, plot } from "./chart.js";
import { meter } from "./costs.js";
import { DRAWS, converged, history, onlyWhereOpen, race, races, world } from "./demo_play.js";
import { boundary } from "./demo_stats.js";
import { h, s } from "./dom.js";
import { interval } from "./facts.js";
import { note, sumOf, table } from "./parts.js";
import { axis, plotScale } from "./ranking.js";
import { messageOf, number, percent, plain } from "./text.js";
import { rankChart } from "./trajectories.js";
/** @import { Child } from "./dom.js" */
/** @import { Race, Round, Rule, Step, World } from "./demo_play.js" */

/** @typedef {[name: string, value: (n: number) => number | null]} Curve over the number of trials */

const RULE = /** @type {Rule} */ (JSON.parse(document.getElementById("rule")?.textContent ?? "{}"));
const SCALE = { low: 0, high: 1, inPercent: true };
const NO_WORLD = { names: [], answers: [], truth: null };
const RACES = 400;
const MAX_Z = 4.5;
const [STEP_MS, STILL_STEP_MS, STILL_STRIDE] = [150, 1500, 10];
/** Below this room a table leaves out what is least needed. */
const PHONE = 420;

/** @type {[id: string, label: string, attributes: Record<string, any>][]} */
const FIELDS = [
  ["scores", "true scores, %", { value: "62, 60, 55, 40", size: 24 }],
  ["questions", "questions", { type: "number", min: 1, max: 200, value: 30 }],
  ["difficulty", "difficulty spread", { type: "number", min: 0, max: 6, step: 0.5, value: 1.5 }],
  ["most", "trials N", { type: "number", min: 5, max: 200, value: 80 }],
  ["prior", "prior, imagined answers of each kind:", { type: "range", min: 0.5, max: 10, step: 0.5, value: 1 }],
  ["wrong", "rubric, what a wrong answer is worth:", { type: "range", min: 0, max: 0.9, step: 0.1, value: 0 }],
];

/** @type {{world: World, steps: Step[], rounds: Round[], n: number, timer: number, seed: number, race: Race}} */
const state = { world: NO_WORLD, steps: [], rounds: [], n: 1, timer: 0, seed: 1, race: race(1, RULE) };

const field = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (document.getElementById(id));
/** The value of a share of right answers by the rubric, in which a wrong answer may be worth something too. */
const worth = (/** @type {number} */ share) => Number(field("wrong").value) * (1 - share) + share;

/** The width of a panel: two stand side by side where each has enough room, as demo.css has it. */
function room() {
  const page = Math.min(1240, document.documentElement.clientWidth);
  return Math.max(240, page >= 980 ? (page - 48 - 20) / 2 - 34 : page - 82);
}

/** @param {string} id @param {string} label @param {Record<string, any>} attributes */
function input(id, label, attributes) {
  const value = label.endsWith(":") ? [" ", h("output", { for: id }, String(attributes.value))] : null;
  return h("label", { for: id }, h("span", null, label, value), h("input", { id, name: id, ...attributes }));
}

function page() {
  const button = (/** @type {string} */ id, /** @type {string} */ text) => h("button", { id, type: "button" }, text);
  const choices = FIELDS.map((given) => input(...given));
  return [
    h("header", { class: "top" }, [
      h("p", { class: "brand" }, "adaptive-eval"),
      h("h1", null, "Ranking models by sampling"),
    ]),
    h("section", { class: "demo-panel demo-race", "aria-labelledby": "peeking" }, [
      h("div", null, [
        h("h2", { id: "peeking" }, "Two equal models, looked at after every trial"),
        h("p", null, [
          "Neither is better. A rule that names a winner at the first z beyond 1.645 will find one, if it looks often ",
          "enough. A boundary for any looks allows for every look.",
        ]),
        h("div", { class: "demo-choice" }, button("again", "Another race"), button("many", `${RACES} races`)),
        h("p", { id: "tally", role: "status" }),
      ]),
      h("div", { id: "race" }),
    ]),
    h("p", null, [
      "Now models that differ: they answer questions by chance, and each trial adds to what is known of who is better. ",
      "Sample, pause, go back; then see how few trials it takes to ask only where the ranking is still open.",
    ]),
    h("form", { class: "demo-choice", "aria-label": "What is sampled" }, [
      choices,
      h("button", { type: "submit" }, "New draw"),
    ]),
    h("p", { id: "problem", class: "problem", role: "alert" }),
    h("div", { class: "demo-choice" }, [
      h("button", { id: "play", type: "button", "aria-pressed": "false" }, "Play"),
      button("step", "One trial"),
      input("n", "trials so far", { type: "range", min: 1, max: 80, value: 1 }),
      h("output", { id: "told", for: "n" }),
    ]),
    h("main", { id: "seen" }),
  ];
}

/** A part of the page under its own heading. @param {string} title @param {...Child} content */
function panel(title, ...content) {
  return h("section", { class: "demo-panel", "aria-label": title }, h("h2", null, title), content);
}

/**
 * @param {string} label
 * @param {number} most @param {[number, number]} up @param {Curve[]} curves @param {number} drawn
 */
function curvesChart(label, most, up, curves, drawn) {
  const colours = curves.map((_, index) => lineColour(index, curves.length));
  const caption = curves.map(([name], index) => [
    index ? " " : null,
    h("span", { class: "demo-key", style: { "border-color": colours[index] } }, name),
  ]);
  const points = (/** @type {Curve} */ [, value]) =>
    Array.from({ length: drawn }, (_, index) => /** @type {[number, number | null]} */ ([index + 1, value(index + 1)]));
  const format = (/** @type {number} */ value) => number(value, up[1] > 2 ? 0 : 1);
  const frame = { width: room(), height: 230, across: /** @type {[number, number]} */ ([1, most]), unit: "trials" };
  return plot({ label, caption, ...frame, up, format }, (plane) =>
    curves.map((curve, index) => {
      const dash = index % 2 ? "6 3" : null;
      const stroke = { fill: "none", stroke: colours[index], "stroke-width": 1.8, "stroke-dasharray": dash };
      return s("path", { d: line(points(curve), plane), ...stroke });
    }),
  );
}

function ranking() {
  const { world, steps, n } = state;
  const { models, ranks, order } = steps[n - 1];
  const isWide = room() > PHONE;
  const share = (/** @type {number} */ value) => (Number.isNaN(value) ? "–" : percent(value, 1));
  return table({
    caption: `Ranking after ${n} trials`,
    rows: order,
    columns: [
      ["model", (model) => plain(world.names[model], 40)],
      ["rank", (model) => ranks[model]],
      ["average", (model) => share(worth(models[model].a[0]))],
      ["±", (model) => share(1.96 * (worth(1) - worth(0)) * models[model].a[1])],
      ["Bayes@N", (model) => share(worth(models[model].mu[0]))],
      isWide && [`Pass@${DRAWS}`, (model) => share(models[model].pass)],
      isWide && ["truth", (model) => (world.truth ? share(worth(world.truth[model])) : "–")],
    ],
  });
}

/** The posterior of each score with its 95% interval; the true score is a line. */
function posteriors() {
  const { world, steps, n } = state;
  const rows = steps[n - 1].order.map((model) => {
    const [mean, sigma] = steps[n - 1].models[model].mu;
    const [lo, value, hi] = [-1.96, 0, 1.96].map((z) => worth(Math.min(Math.max(mean + z * sigma, 0), 1)));
    const truth = world.truth ? [worth(world.truth[model])] : [];
    return { name: world.names[model], value, lo, hi, truth };
  });
  const scale = plotScale(rows, SCALE);
  return table({
    caption: "Posterior of each score",
    rows,
    columns: [
      ["model", ({ name }) => plain(name, 24)],
      [axis(scale, SCALE), ({ truth, ...row }) => intervalPlot(scale.x, row, truth, interval(SCALE, row.lo, row.hi))],
    ],
  });
}

/** The trials of each model when only open neighbours are asked. */
function spending() {
  const { rounds, steps, n, world } = state;
  const most = steps.length;
  const { trials, told } = rounds[(n === most ? rounds.length : Math.min(n, rounds.length)) - 1];
  const [spent, all] = [sumOf(trials, Number), n * trials.length];
  const bars = world.names.map((name, model) =>
    meter(plain(name, 24), trials[model], most, `${trials[model]}${n < most && trials[model] < n ? " ✓" : ""}`),
  );
  const comparison = `${spent} trials per question instead of ${all} (${percent(spent / all)})`;
  const rule = "✓: no more requests, since its order against both neighbours is decided.";
  const result = `${told} of ${trials.length - 1} neighbours decided.`;
  return [
    h("div", { class: "budget" }, h("ul", null, bars)),
    h("p", { id: "spent" }, `${comparison}; ${result} ${rule}`),
  ];
}

/** Ranks over the trials so far, and since when they have stood. */
function ranksSoFar() {
  const { world, steps, n } = state;
  const seen = steps.slice(0, n);
  const [forGood, since] = [converged(steps), converged(seen)];
  const named = (/** @type {Step} */ { order }) => order.map((model) => world.names[model]);
  const settled = forGood ? `from trial ${forGood} on` : "not before the last trial: no convergence";
  const today = since ? `since trial ${since}` : "for one trial";
  return [
    rankChart(
      named(steps[n - 1]),
      seen.map((step) => [step.n, named(step)]),
      "trial",
      room(),
    ),
    h("p", { id: "settled", class: "note" }, [
      `convergence@n: the ranking stays that of all ${steps.length} trials ${settled}. `,
      `The current ranking has stood ${today}.`,
    ]),
  ];
}

function draw() {
  const { steps, n, world } = state;
  const [best] = steps[n - 1].order;
  field("told").textContent = `${n} of ${steps.length}`;
  field("n").max = String(steps.length);
  field("n").value = String(n);
  /** @type {Curve[]} */
  const curves = [
    ["Bayes@N", (trial) => worth(steps[trial - 1].models[best].mu[0])],
    [`Pass@${DRAWS}`, (trial) => steps[trial - 1].models[best].pass],
  ];
  field("seen").replaceChildren(
    panel("The ranking so far", ranking()),
    panel("The same answers, asked for only where the ranking is open", spending()),
    panel("What is known of each score", posteriors(), note("Bayes@N with its 95% interval; the true score dashed.")),
    panel("Ranks as trials are added", ranksSoFar()),
    panel(
      `Scores of ${plain(world.names[best], 24)}, the first of the ranking`,
      curvesChart("One model's scores as trials are added", steps.length, [0, 1], curves, n),
    ),
  );
}

function drawRace() {
  const { z, peeked, sequential } = state.race;
  const most = z.length;
  const call = (/** @type {number} */ n) => (n ? `names a winner after ${n} trials` : `names none in ${most} trials`);
  /** @type {Curve[]} */
  const curves = [
    ["|z|", (n) => Math.min(MAX_Z, Math.abs(z[n - 1]))],
    ["boundary for any looks", (n) => (n / most < RULE.start ? null : Math.min(MAX_Z, boundary(n / most, RULE)))],
    ["1.645", () => 1.645],
  ];
  field("race").replaceChildren(
    curvesChart("z of two equal models", most, [0, MAX_Z], curves, most),
    h("p", { id: "called" }, `Peeking at 1.645 ${call(peeked)}; the boundary for any looks ${call(sequential)}.`),
  );
}

/** Many races: how often, and after how many trials, each rule finds a winner where there is none. */
function drawRaces() {
  state.seed += 1;
  const { peeked, sequential } = races(RACES, state.seed, RULE);
  const summary = (/** @type {{called: number, trials: number}} */ { called, trials }) =>
    `${percent(called, 1)} of the races, ${number(trials, 1)} trials per question`;
  field("tally").textContent =
    `A false winner: peeking at 1.645 in ${summary(peeked)}; the boundary for any looks in ${summary(sequential)}.`;
}

/** Draws a world as the form has it. */
function choose() {
  const parts = field("scores").value.split(/[,;\s]+/);
  const scores = parts.filter(Boolean).map((part) => Number(part) / 100);
  if (scores.length < 2 || scores.length > 20 || !scores.every((score) => score > 0 && score < 1))
    throw new Error("true scores: 2 to 20 numbers between 0 and 100, with commas between them");
  const [questions, difficulty, most] = ["questions", "difficulty", "most"].map((id) => {
    const { name, min, max, value } = field(id);
    if (!field(id).checkValidity() || value === "") throw new Error(`${name}: ${min} to ${max}`);
    return Number(value);
  });
  show(world({ scores, questions, difficulty, most, seed: state.seed }));
}

/** @param {World} drawn */
function show(drawn) {
  pause();
  const steps = history(drawn, Number(field("prior").value));
  Object.assign(state, { world: drawn, steps, rounds: onlyWhereOpen(steps, RULE), n: 1 });
  draw();
}

/** @param {boolean} isPlaying */
function markPlaying(isPlaying) {
  field("play").textContent = isPlaying ? "Pause" : "Play";
  field("play").setAttribute("aria-pressed", String(isPlaying));
}

function pause() {
  clearInterval(state.timer);
  state.timer = 0;
  markPlaying(false);
}

function toggle() {
  if (state.timer) return pause();
  if (state.n >= state.steps.length) state.n = 1;
  markPlaying(true);
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const step = () => (state.n < state.steps.length ? move(state.n + (isStill ? STILL_STRIDE : 1)) : pause());
  state.timer = setInterval(step, isStill ? STILL_STEP_MS : STEP_MS);
}

/** @param {number} n */
function move(n) {
  state.n = Math.min(Math.max(1, n), state.steps.length);
  draw();
}

/** @param {number} n */
function moveByHand(n) {
  pause();
  move(n);
}

/** Draws what the form asks for, or shows what is wrong with it. */
function attempt() {
  field("problem").textContent = "";
  try {
    choose();
  } catch (error) {
    field("problem").textContent = messageOf(error);
  }
}

field("page").replaceChildren(...page());
document.querySelector("form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  state.seed += 1;
  attempt();
});
for (const id of ["prior", "wrong"])
  field(id).addEventListener("input", () => {
    const output = document.querySelector(`output[for=${id}]`);
    if (output) output.textContent = field(id).value;
    if (!state.steps.length) return;
    state.steps = history(state.world, Number(field("prior").value));
    draw();
  });
field("play").addEventListener("click", toggle);
field("step").addEventListener("click", () => moveByHand(state.n + 1));
field("n").addEventListener("input", () => moveByHand(Number(field("n").value)));
field("again").addEventListener("click", () => {
  state.seed += 1;
  state.race = race(state.seed, RULE);
  drawRace();
});
field("many").addEventListener("click", drawRaces);
document.addEventListener("keydown", (event) => {
  const focused = /** @type {HTMLElement} */ (event.target);
  if (focused.closest("input")) return;
  if (event.key === " " && !focused.closest("button")) {
    event.preventDefault();
    toggle();
  }
  if (event.key === "ArrowRight") moveByHand(state.n + 1);
  if (event.key === "ArrowLeft") moveByHand(state.n - 1);
});
window.addEventListener("resize", () => {
  if (state.steps.length) draw();
  drawRace();
});
attempt();
drawRace();
drawRaces();
