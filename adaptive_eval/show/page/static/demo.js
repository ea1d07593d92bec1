// The demonstration: choose models, sample trial by trial, and see what moves. It needs no server and no network.

import { bottomTicks, figure, fitted, horizontalLines, line, linear, lineColour, ticks } from "./chart.js";
import { DRAWS, converged, history, onlyWhereOpen, race, races, world } from "./demo_play.js";
import { boundary } from "./demo_stats.js";
import { load } from "./demo_load.js";
import { h, s } from "./dom.js";
import { region, table } from "./parts.js";
import { messageOf, number, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Race, Round, Rule, Step, World } from "./demo_play.js" */
/** @import { Row } from "./demo_load.js" */

const RULE = /** @type {Rule} */ (JSON.parse(document.getElementById("rule")?.textContent ?? "{}"));
const SCORES = "62, 60, 55, 40";
const RACES = 400;
const [HEIGHT, LEFT, BOTTOM] = [230, 48, 40];
/** Room below which a table leaves out what is least needed. */
const PHONE = 420;
/** As wide as there is room for: two panels stand side by side where each has enough (demo.css says the same). */
function room() {
  const page = Math.min(1240, document.documentElement.clientWidth);
  return Math.max(240, page >= 980 ? (page - 48 - 20) / 2 - 34 : page - 82);
}

/** @type {{world: World, steps: Step[], rounds: Round[], n: number, timer: number, seed: number, race: Race, many: string, rows: Row[]}} */
const state = {
  world: { names: [], answers: [], truth: [] },
  steps: [],
  rounds: [],
  n: 1,
  timer: 0,
  seed: 1,
  race: race(1, RULE),
  many: "",
  rows: [],
};

const field = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (document.getElementById(id));
const shown = () => state.steps[state.n - 1];
const wrong = () => Number(field("wrong").value);
/** What a share of right answers is worth by the rubric, where a wrong one is worth something too. */
const worths = () => (/** @type {number} */ share) => wrong() + (1 - wrong()) * share;

/** @param {string} id @param {string} label @param {Record<string, any>} attributes */
function input(id, label, attributes) {
  const value = label.endsWith(":") ? [" ", h("output", { for: id }, String(attributes.value))] : null;
  return h("label", { for: id }, h("span", null, label, value), h("input", { id, name: id, ...attributes }));
}

function page() {
  return [
    h("header", { class: "top" }, [
      h("p", { class: "brand" }, "adaptive-eval"),
      h("h1", null, "Ranking models by sampling"),
    ]),
    h("section", { class: "demo-panel demo-race", "aria-labelledby": "peeking" }, [
      h("div", null, [
        h("h2", { id: "peeking" }, "Two equal models, looked at after every trial"),
        h(
          "p",
          null,
          "Neither is better. A rule that calls a winner at the first z beyond 1.645 will find one, if it looks often enough; a boundary for any looks allows for every one.",
        ),
        h("div", { class: "demo-choice" }, [
          h("button", { id: "again", type: "button" }, "Another race"),
          h("button", { id: "many", type: "button" }, `${RACES} races`),
        ]),
        h("p", { id: "tally", role: "status" }),
      ]),
      h("div", { id: "race" }),
    ]),
    h(
      "p",
      null,
      "Now models that differ: they answer questions by chance, and each trial tells a little more of who is better. Sample, pause, go back; then see how few trials it takes to ask only where the ranking is still open.",
    ),
    h("form", { class: "demo-choice", "aria-label": "What is sampled" }, [
      input("scores", "true scores, %", { value: SCORES, size: 24 }),
      input("questions", "questions", { type: "number", min: 1, max: 200, value: 30 }),
      input("difficulty", "difficulty spread", { type: "number", min: 0, max: 6, step: 0.5, value: 1.5 }),
      input("most", "trials N", { type: "number", min: 5, max: 200, value: 80 }),
      input("prior", "prior, imagined answers of each kind:", {
        type: "range",
        min: 0.5,
        max: 10,
        step: 0.5,
        value: 1,
      }),
      input("wrong", "rubric, what a wrong answer is worth:", { type: "range", min: 0, max: 0.9, step: 0.1, value: 0 }),
      h("button", { type: "submit" }, "New draw"),
      input("file", "or a real run (results.json, .csv)", { type: "file", accept: ".json,.csv" }),
    ]),
    h("p", { id: "problem", class: "problem", role: "alert" }),
    h("div", { class: "demo-choice" }, [
      h("button", { id: "play", type: "button", "aria-pressed": "false" }, "Play"),
      h("button", { id: "step", type: "button" }, "One trial"),
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

/** Names of lines in their colours. @param {string[]} names */
function key(names) {
  return names.map((name, at) => [
    at ? " " : null,
    h("span", { class: "demo-key", style: { "border-color": colourOf(at, names.length) } }, plain(name, 24)),
  ]);
}

const colourOf = (/** @type {number} */ at, /** @type {number} */ of) => lineColour(of > 1 ? at / (of - 1) : 0);

/** @param {string} label @param {[string, [number, number | null][]][]} curves @param {number} low @param {number} high */
function curvesOver(label, curves, low, high, most = state.steps.length) {
  const width = room();
  const x = linear(1, most, LEFT, width - 12);
  const y = linear(low, high, HEIGHT - BOTTOM, 12);
  return figure({ label, width, height: HEIGHT, caption: h("span", null, key(curves.map(([name]) => name))) }, [
    horizontalLines(ticks(low, high, 5), y, LEFT, width - 12, (value) =>
      number(high < 0 ? -value : value, high - low > 2 ? 0 : 1),
    ),
    bottomTicks(ticks(1, most, 6, true), x, HEIGHT - BOTTOM, String, "trials", width - 12),
    curves.map(([, points], at) => {
      const [across, up] = points.findLast(([, value]) => value !== null) ?? [1, null];
      const stroke = colourOf(at, curves.length);
      return [
        s("path", {
          d: line(points, x, y),
          fill: "none",
          stroke,
          "stroke-width": 1.8,
          "stroke-dasharray": at % 2 ? "6 3" : null,
        }),
        up !== null && across < most ? s("circle", { cx: x(across), cy: y(up), r: 3, fill: stroke }) : null,
      ];
    }),
  ]);
}

/** What each model has had of its N trials when only open neighbours are asked. */
function spending() {
  const { rounds, steps, n, world: drawn } = state;
  const most = steps.length;
  const { trials, told } = rounds[(n === most ? rounds.length : Math.min(n, rounds.length)) - 1];
  const spent = trials.reduce((total, one) => total + one, 0);
  const width = room();
  const x = linear(0, most, 96, width - 48);
  const of = trials.length;
  const looked = new Set(shown().tiers).size - 1;
  const height = of * 30 + 12;
  return [
    figure(
      { label: `Trials of each model after ${n} rounds`, width, height },
      drawn.names.map((name, at) => {
        const y = 8 + at * 30;
        const stood = n < most && trials[at] < n;
        return [
          s("text", { class: "tick", x: 88, y: y + 10, dy: "0.32em", "text-anchor": "end" }, fitted(name, 84)),
          s("rect", { class: "demo-room", x: x(0), y, width: x(most) - x(0), height: 20, rx: 3 }),
          s("rect", { x: x(0), y, width: x(trials[at]) - x(0), height: 20, rx: 3, fill: colourOf(at, of) }),
          s("text", { class: "tick", x: x(most) + 6, y: y + 10, dy: "0.32em" }, `${trials[at]}${stood ? " ✓" : ""}`),
        ];
      }),
    ),
    h("p", { id: "spent" }, [
      `${spent} trials a question instead of ${n * of} (${percent(spent / (n * of))}); ${told} of ${of - 1} neighbours decided. `,
      n === most
        ? `All ${most} trials of everyone, looked at once, tell ${looked} apart.`
        : "A model is asked no more (✓) while its neighbours in the ranking are told from it.",
    ]),
  ];
}

/** Posteriors: normal with the mean and sigma of each model; the true score is a tick. */
function posteriors() {
  const { models } = shown();
  const width = room();
  const nameRoom = 96;
  const place = linear(0, 1, nameRoom, width - 24);
  const worth = worths();
  const x = (/** @type {number} */ share) => place(worth(share));
  const rows = models.map((one, at) => {
    const [mean, sigma] = one.mu;
    const foot = 34 + at * 34;
    const points = Array.from({ length: 121 }, (_, at) => mean + (at / 30 - 2) * 2 * sigma).filter(
      (v) => v >= 0 && v <= 1,
    );
    const bell = points.map(
      (v) => /** @type {[number, number]} */ ([v, foot - 24 * Math.exp(-0.5 * ((v - mean) / sigma) ** 2)]),
    );
    const truth = state.world.truth?.[at];
    return [
      s(
        "text",
        { class: "tick", x: nameRoom - 8, y: foot, "text-anchor": "end" },
        fitted(state.world.names[at], nameRoom - 12),
      ),
      s("path", { d: line(bell, x, (v) => v), fill: "none", stroke: "var(--quiet)" }),
      s("line", {
        x1: x(Math.max(0, one.a[0] - 1.96 * one.a[1])),
        x2: x(Math.min(1, one.a[0] + 1.96 * one.a[1])),
        y1: foot + 4,
        y2: foot + 4,
        stroke: colourOf(at, models.length),
        "stroke-width": 3,
      }),
      truth === undefined
        ? null
        : s("line", {
            x1: x(truth),
            x2: x(truth),
            y1: foot - 26,
            y2: foot + 8,
            stroke: "var(--open)",
            "stroke-dasharray": "3 2",
          }),
    ];
  });
  const height = 50 + models.length * 34 + 20;
  return figure({ label: `Posteriors of ${models.length} models after ${state.n} trials`, width, height }, [
    bottomTicks(ticks(0, 1, 5), place, height - 40, (value) => percent(value), "score", width - 24),
    rows,
  ]);
}

function standing() {
  const { models, ranks, tiers } = shown();
  const order = models.map((_, at) => at).sort((one, other) => models[other].a[0] - models[one].a[0] || one - other);
  const worth = worths();
  /** @type {[string, boolean, (at: number) => string][]} */
  const columns = [
    ["model", true, (at) => plain(state.world.names[at], 40)],
    ["rank", true, (at) => String(ranks[at])],
    ["with uncertainty", false, (at) => String(tiers[at])],
    ["average", true, (at) => percent(worth(models[at].a[0]), 1)],
    ["±", true, (at) => percent(1.96 * (1 - wrong()) * models[at].a[1], 1)],
    ["Bayes@N", true, (at) => percent(worth(models[at].mu[0]), 1)],
    [`Pass@${DRAWS}`, false, (at) => (Number.isNaN(models[at].pass) ? "–" : percent(models[at].pass, 1))],
    ["truth", false, (at) => (state.world.truth ? percent(worth(state.world.truth[at]), 1) : "–")],
  ];
  const fitting = columns.filter(([, always]) => always || room() > PHONE);
  return table({
    caption: `Ranking after ${state.n} trials`,
    head: fitting.map(([title]) => title),
    rows: order.map((at) => fitting.map(([, , cell]) => cell(at))),
  });
}

function draw() {
  const { steps, n, world: drawn } = state;
  const seen = steps.slice(0, n);
  const [at, now] = [converged(steps), converged(seen)];
  const best = shown().ranks.indexOf(1);
  const path = (/** @type {(step: Step) => number} */ value) =>
    seen.map(
      (step) => /** @type {[number, number | null]} */ ([step.n, Number.isNaN(value(step)) ? null : value(step)]),
    );
  field("told").textContent = `${n} of ${steps.length}`;
  field("n").max = String(steps.length);
  field("n").value = String(n);
  const gold = drawn.truth ? "the true scores" : "the ranking of all trials";
  const settled = at ? `from trial ${at} on` : "not before the last trial: no convergence";
  document.getElementById("seen")?.replaceChildren(
    panel("The ranking so far", region("Ranking", "", standing())),
    panel("The same answers, asked for only where the ranking is open", spending()),
    panel(
      "What is known of each score",
      posteriors(),
      h("p", { class: "note" }, "Posterior (Bayes@N), 95% interval of the average, and the true score dashed."),
    ),
    panel(
      "Ranks as trials are added",
      curvesOver(
        "Ranks as trials are added, 1 above",
        drawn.names.map((name, model) => [name, path((step) => -step.ranks[model])]),
        -drawn.names.length,
        -1,
      ),
      h(
        "p",
        { id: "settled", class: "note" },
        `convergence@n: the ranking is that of all ${steps.length} trials for good ${settled}. Today's ranking has stood ${now ? `since trial ${now}` : "for one trial"}.`,
      ),
    ),
    panel(
      `Agreement with ${gold} (Kendall's tau-b)`,
      curvesOver(
        "Agreement of the ranking as trials are added",
        [
          ["average, Bayes@N", path((step) => step.tau)],
          [`Pass@${DRAWS}`, path((step) => step.tauPass)],
        ],
        -1,
        1,
      ),
    ),
    panel(
      `Scores of ${plain(drawn.names[best], 24)}, the first of the ranking`,
      curvesOver(
        "One model's scores as trials are added",
        [
          ["Bayes@N", path((step) => worths()(step.models[best].mu[0]))],
          [`Pass@${DRAWS}`, path((step) => step.models[best].pass)],
        ],
        0,
        1,
      ),
    ),
  );
}

function drawRace() {
  const { z, peeked, sequential } = state.race;
  const most = z.length;
  const points = (/** @type {(n: number) => number | null} */ value) =>
    z.map((_, at) => /** @type {[number, number | null]} */ ([at + 1, value(at + 1)]));
  const edge = (/** @type {number} */ n) => (n / most < RULE.start ? null : Math.min(4.5, boundary(n / most, RULE)));
  const told = (/** @type {number} */ at) =>
    at ? `calls a winner after ${at} trials` : `calls none in ${most} trials`;
  document.getElementById("race")?.replaceChildren(
    curvesOver(
      "z of two equal models",
      [
        ["|z|", points((n) => Math.min(4.5, Math.abs(z[n - 1])))],
        ["boundary for any looks", points(edge)],
        ["1.645", points(() => 1.645)],
      ],
      0,
      4.5,
      most,
    ),
    h("p", { id: "called" }, `Peeking at 1.645 ${told(peeked)}; the boundary for any looks ${told(sequential)}.`),
  );
}

/** Many races: how often, and after how many trials, each rule finds a winner where there is none. */
function drawRaces() {
  state.seed += 1;
  const { peeked, sequential } = races(RACES, state.seed, RULE);
  const told = (/** @type {{called: number, trials: number}} */ one) =>
    `${percent(one.called, 1)} of the races, ${number(one.trials, 1)} trials a question`;
  field("tally").textContent =
    `A winner that is none: peeking at 1.645 in ${told(peeked)}; the boundary for any looks in ${told(sequential)}.`;
}

/** Takes what is in the form. */
function choose() {
  const scores = field("scores")
    .value.split(/[,;\s]+/)
    .filter(Boolean)
    .map((one) => Number(one) / 100);
  if (scores.length < 2 || scores.length > 20 || !scores.every((one) => one > 0 && one < 1))
    throw new Error("true scores: 2 to 20 numbers between 0 and 100, with commas between them");
  const [questions, difficulty, most] = ["questions", "difficulty", "most"].map((id) => field(id));
  for (const one of [questions, difficulty, most])
    if (!one.checkValidity() || one.value === "") throw new Error(`${one.name}: ${one.min} to ${one.max}`);
  show(
    world({
      scores,
      questions: Number(questions.value),
      difficulty: Number(difficulty.value),
      most: Number(most.value),
      seed: state.seed,
    }),
  );
}

/** @param {World} drawn */
function show(drawn) {
  pause();
  const steps = history(drawn, Number(field("prior").value));
  Object.assign(state, { world: drawn, steps, rounds: onlyWhereOpen(steps, RULE), n: 1 });
  draw();
}

function pause() {
  clearInterval(state.timer);
  state.timer = 0;
  const play = document.getElementById("play");
  if (play) play.textContent = "Play";
  play?.setAttribute("aria-pressed", "false");
}

function toggle() {
  if (state.timer) return pause();
  if (state.n >= state.steps.length) state.n = 1;
  const play = field("play");
  play.textContent = "Pause";
  play.setAttribute("aria-pressed", "true");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  state.timer = setInterval(
    () => (state.n < state.steps.length ? move(state.n + (still ? 10 : 1)) : pause()),
    still ? 1500 : 150,
  );
}

/** @param {number} n */
function move(n) {
  state.n = Math.min(Math.max(1, n), state.steps.length);
  draw();
}

/** Does it, and says what went wrong. @param {() => void | Promise<void>} work */
async function tried(work) {
  const told = field("problem");
  told.textContent = "";
  try {
    await work();
  } catch (error) {
    told.textContent = messageOf(error);
  }
}

async function loaded() {
  const file = field("file").files?.[0];
  if (!file) return;
  const found = await load(file);
  if ("trials" in found) return show({ ...found.trials, truth: null });
  pause();
  const head = ["model", "tier", "score", "95% interval"];
  const rows = found.rows.map((one) => [
    plain(one.name, 60),
    String(one.tier),
    percent(one.score, 1),
    `${percent(one.lo, 1)} to ${percent(one.hi, 1)}`,
  ]);
  document
    .getElementById("seen")
    ?.replaceChildren(
      panel(
        "Ranking of the run",
        region("Ranking of the run", "", table({ caption: "Ranking of the run", head, rows })),
      ),
    );
}

document.getElementById("page")?.replaceChildren(...page());
document.querySelector("form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  state.seed += 1;
  void tried(choose);
});
field("file").addEventListener("change", () => void tried(loaded));
for (const moved of ["prior", "wrong"])
  field(moved).addEventListener("input", () => {
    const told = document.querySelector(`output[for=${moved}]`);
    if (told) told.textContent = field(moved).value;
    if (!state.steps.length) return;
    state.steps = history(state.world, Number(field("prior").value));
    draw();
  });
field("play").addEventListener("click", toggle);
field("step").addEventListener("click", () => (pause(), move(state.n + 1)));
field("n").addEventListener("input", () => (pause(), move(Number(field("n").value))));
field("again").addEventListener("click", () => {
  state.seed += 1;
  state.race = race(state.seed, RULE);
  drawRace();
});
field("many").addEventListener("click", drawRaces);
document.addEventListener("keydown", (event) => {
  const on = /** @type {HTMLElement} */ (event.target);
  if (on.closest("input")) return;
  if (event.key === " " && !on.closest("button")) (event.preventDefault(), toggle());
  if (event.key === "ArrowRight") (pause(), move(state.n + 1));
  if (event.key === "ArrowLeft") (pause(), move(state.n - 1));
});
window.addEventListener("resize", () => {
  if (state.steps.length && document.getElementById("settled")) draw();
  drawRace();
});
void tried(choose);
drawRace();
drawRaces();
