// A question whole: what was asked, what is known of every model on it, and (beside a live server) the answers.

import { linear } from "./chart.js";
import { h, on, s, update } from "./dom.js";
import { categoryName, countsText, entry, interval, posteriorOf, score } from "./facts.js";
import { factList, region, table } from "./parts.js";
import { INSPECT_LOGS } from "./sent.js";
import { term } from "./terms.js";
import { duration, messageOf, name, plain, plural, visible } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Scale } from "./chart.js" */
/** @import { Facts } from "./facts.js" */
/** @import { State } from "./parts.js" */

/**
 * What the dialog shows.
 * @typedef {object} Seen
 * @property {number} index
 * @property {string | null} model
 * @property {TrialView[]} trials
 * @property {boolean} more
 * @property {string | null} problem
 * @property {boolean} busy
 * @property {number} ask
 * @property {Map<number, TranscriptEnd | string>} ends
 */

const FOREST = { width: 220, height: 20, pad: 6 };

/**
 * A dialog on questions; `fetchTrials(question, model, after)` is null where no texts are available.
 * @param {State} state
 * @param {((question: number, model: number, after: number | null) => Promise<AnswersPage>) | null} fetchTrials
 * @param {(question: number, model: number, trial: number) => Promise<TranscriptEnd>} fetchEnd
 */
export function questionDialog(state, fetchTrials, fetchEnd) {
  const body = h("div", { class: "body" });
  const dialog = h("dialog", { "aria-labelledby": "question-title" }, [
    h("form", { method: "dialog" }, h("button", { class: "close", "aria-label": "Close" }, "×")),
    body,
  ]);
  document.body.append(dialog);
  /** @type {Seen} */
  const seen = { index: 0, model: null, trials: [], more: false, problem: null, busy: false, ask: 0, ends: new Map() };

  const draw = () => update(body, h("div", null, content(state, seen, fetchTrials !== null)));
  const load = async () => {
    if (!fetchTrials || seen.model === null) return;
    seen.ask += 1;
    const { ask } = seen;
    seen.busy = true;
    draw();
    try {
      const found = await fetchTrials(
        seen.index,
        entry(state.facts.columnOf, seen.model),
        seen.trials.at(-1)?.trial ?? null,
      );
      if (ask !== seen.ask) return;
      seen.trials = [...seen.trials, ...found.trials];
      Object.assign(seen, { more: found.more, problem: null });
    } catch (error) {
      if (ask !== seen.ask) return;
      seen.problem = `The answers could not be read: ${messageOf(error)}`;
    }
    seen.busy = false;
    draw();
  };
  const choose = (/** @type {string} */ model) => {
    Object.assign(seen, { model, trials: [], more: false, problem: null, ends: new Map() });
    draw();
    load();
  };
  const loadEnd = async (/** @type {number} */ number) => {
    const trial = seen.trials.find((one) => one.trial === number);
    const { ends, index, model } = seen;
    if (!trial || !ofInspect(trial) || ends.has(number)) return;
    ends.set(number, "Reading Inspect’s log …");
    draw();
    try {
      ends.set(number, await fetchEnd(index, entry(state.facts.columnOf, model ?? ""), number));
    } catch (error) {
      ends.set(number, `Inspect’s log could not be read: ${messageOf(error)}`);
    }
    if (ends === seen.ends) draw();
  };

  on(dialog, "click", "[data-model]", (button) => choose(button.dataset.model ?? ""));
  on(dialog, "click", "[data-next]", load);
  dialog.addEventListener(
    "toggle",
    ({ target }) => {
      if (target instanceof HTMLDetailsElement && target.open && target.matches(".answer"))
        loadEnd(Number(target.dataset.key));
    },
    { capture: true }, // it does not rise from where it happens
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const open = (/** @type {number} */ index, /** @type {string | null} */ model = null) => {
    seen.index = index;
    if (!dialog.open) dialog.showModal();
    choose(model ?? state.facts.names[0]);
    body.scrollTop = 0;
  };
  return { open, redraw: () => dialog.open && draw() };
}

/** @param {State} state @param {Seen} seen @param {boolean} answers */
function content(state, seen, answers) {
  const { view, facts } = state;
  const question = view.questions[seen.index];
  return [
    h("h2", { id: "question-title" }, "Question ", name(question.id, 80)),
    question.cluster === null ? null : h("p", { class: "note" }, "cluster ", name(question.cluster, 80)),
    h("pre", { class: "foreign", dir: "auto" }, visible(question.prompt)),
    question.choices.length
      ? h(
          "ol",
          { class: "choices", type: "A" },
          question.choices.map((choice) => h("li", { dir: "auto" }, visible(choice))),
        )
      : null,
    h("p", null, "Answer key: ", h("code", { dir: "auto" }, visible(question.answer))),
    known(view, facts, seen, answers),
    answers ? trials(state, seen) : null,
  ];
}

/** @param {RunView} view @param {Facts} facts @param {Seen} seen @param {boolean} answers */
function known(view, facts, seen, answers) {
  const x = linear(facts.low, facts.high, FOREST.pad, FOREST.width - FOREST.pad);
  const model = (/** @type {string} */ text) =>
    answers
      ? h(
          "button",
          { type: "button", class: "link", "data-model": text, "aria-pressed": String(text === seen.model) },
          name(text, 40),
        )
      : name(text, 40);
  return region(
    "What is known of each model",
    answers ? "tall low" : "",
    table({
      caption: answers
        ? "What is known of each model on it; choose one for its answers"
        : "What is known of each model on it",
      shown: answers,
      head: [
        "Model",
        "Answers",
        term("bayes", "Posterior mean"),
        "95% interval",
        `from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}`,
      ],
      key: (at) => facts.names[at],
      rows: facts.names.map((text) => {
        const known = posteriorOf(view, facts, text, seen.index);
        const asked = known.counts.some(Boolean);
        return [
          model(text),
          countsText(view, known.counts),
          asked ? score(facts, known.mean) : "–",
          asked ? interval(facts, known.lo, known.hi) : "–",
          asked ? forest(known, x) : "",
        ];
      }),
    }),
  );
}

/** @param {PosteriorView} known @param {Scale} x */
function forest(known, x) {
  const middle = FOREST.height / 2;
  return s(
    "svg",
    {
      viewBox: `0 0 ${FOREST.width} ${FOREST.height}`,
      width: FOREST.width,
      height: FOREST.height,
      "aria-hidden": "true",
    },
    [
      s("line", { class: "grid", x1: FOREST.pad, x2: FOREST.width - FOREST.pad, y1: middle, y2: middle }),
      s("line", { class: "whisker", x1: x(known.lo), x2: x(known.hi), y1: middle, y2: middle }),
      s("circle", { class: "dot", cx: x(known.mean), cy: middle, r: 3.5 }),
    ],
  );
}

/** @param {State} state @param {Seen} seen */
function trials(state, seen) {
  const { view } = state;
  return h("section", { "data-key": `trials-${seen.model}`, "aria-label": "Answers" }, [
    h("h3", null, "Answers of ", name(seen.model, 60)),
    h(
      "div",
      { class: "answers" },
      seen.trials.map((trial) => answer(view, trial, seen.ends.get(trial.trial))),
    ),
    seen.problem ? h("p", { class: "problem", role: "alert" }, plain(seen.problem, 400)) : null,
    seen.busy ? h("p", { class: "quiet", role: "status" }, "Reading …") : null,
    !seen.busy && !seen.problem && !seen.trials.length ? h("p", { class: "quiet" }, "There are none yet.") : null,
    seen.more && !seen.busy
      ? h("button", { type: "button", class: "more", "data-next": "" }, "Show more answers")
      : null,
  ]);
}

/** @param {TrialView} trial */
const ofInspect = (trial) => trial.replica.startsWith(`${INSPECT_LOGS}/`);

/** @param {RunView} view @param {TrialView} trial @param {TranscriptEnd | string | undefined} end */
function answer(view, trial, end) {
  const grade = trial.category === null ? "not graded" : categoryName(view, trial.category);
  const best = trial.value !== null && trial.value === Math.max(...view.weights);
  const facts = [
    ["extracted", trial.extracted],
    ["grader error", trial.grader_error],
    ["signals", signals(trial.signals)],
    ["finish reason", trial.finish_reason],
    ["seed", trial.seed],
    [ofInspect(trial) ? "Inspect’s log" : "server", trial.replica],
    ["attempts", trial.attempts > 1 ? trial.attempts : null],
    ["bits per token", short(trial.completion_bpt)],
  ];
  /** @type {[Child, Child][]} */
  const rows = facts.map(([label, value]) => [label, value === null || value === undefined ? null : plain(value, 600)]);
  return h("details", { class: "answer", "data-key": String(trial.trial) }, [
    h("summary", null, [
      h("span", { class: "digits" }, `#${trial.trial}`),
      h("span", { class: `grade ${trial.category === null ? "failed" : best ? "best" : ""}` }, grade),
      h("span", { class: "extracted" }, plain(trial.extracted ?? "", 40)),
      h("span", { class: "quiet digits" }, `${plural(trial.completion_tokens, "token")}, ${duration(trial.latency)}`),
    ]),
    factList(rows),
    trial.reasoning
      ? h("details", { class: "reasoning" }, [
          h("summary", null, "Reasoning"),
          h("pre", { class: "foreign", dir: "auto" }, visible(trial.reasoning)),
        ])
      : null,
    h(
      "pre",
      { class: "foreign", dir: "auto" },
      trial.text ? visible(trial.text) : h("span", { class: "quiet" }, "(empty)"),
    ),
    trial.tokens.length ? tokenList(trial) : null,
    end === undefined ? null : transcriptEnd(end),
  ]);
}

/** The last message of a transcript, or why it is not there. @param {TranscriptEnd | string} end */
export function transcriptEnd(end) {
  if (typeof end === "string") return h("p", { class: "quiet", role: "status" }, plain(end, 400));
  const { log, role, sample, text } = end;
  const where = `sample ${plain(sample, 200)} in ${plain(log, 200)}`;
  if (role === null) return h("p", { class: "note transcript" }, `${plain(text, 600)} It is ${where}.`);
  return h("section", { class: "transcript", "aria-label": "Last message of its transcript" }, [
    h("p", { class: "note" }, `Last message of its transcript (${where}), by ${plain(role, 40)}:`),
    h("pre", { class: "foreign", dir: "auto" }, text ? visible(text) : h("span", { class: "quiet" }, "(empty)")),
  ]);
}

/**
 * The first tokens of an answer with the probability of each.
 * @param {TrialView} trial
 */
function tokenList({ tokens, completion_tokens }) {
  const lines = tokens.map(([token, logprob]) => {
    const chance = logprob === null ? "?" : `${(100 * Math.exp(logprob)).toFixed(1)}%`;
    return `${chance.padStart(6)}  ${JSON.stringify(token)}`;
  });
  const all = tokens.length >= completion_tokens;
  return h("details", { class: "reasoning" }, [
    h("summary", null, `Probabilities of ${all ? "its" : "the first"} ${plural(tokens.length, "token")}`),
    h("pre", { class: "foreign", dir: "ltr" }, visible(lines.join("\n"))),
  ]);
}

/**
 * A number with no more digits than anybody reads; anything else as it is.
 * @template Value
 * @param {Value} value
 */
const short = (value) => (typeof value === "number" ? Number(value.toPrecision(4)) : value);

/**
 * Signals that are set: a plain yes by its name, anything else with its value; several kinds come as one mapping.
 * @param {Record<string, unknown>} given
 */
function signals(given) {
  if (Array.isArray(given)) return given.join(", ");
  return Object.entries(given ?? {})
    .filter(([, value]) => value !== false && value !== null)
    .map(([key, value]) => (value === true ? key : `${key} ${short(value)}`))
    .join(", ");
}
