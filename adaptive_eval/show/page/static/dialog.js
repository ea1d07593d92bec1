// A question: its text, the posterior of every model on it, and (if a server has them) the answers.

import { intervalPlot, linear } from "./chart.js";
import { h, on, update } from "./dom.js";
import { categoryName, countsText, entry, interval, posteriorOf, score } from "./facts.js";
import { factList, note, table } from "./parts.js";
import { INSPECT_LOGS } from "./sent.js";
import { term } from "./terms.js";
import { duration, messageOf, name, plain, plural, visible } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { State } from "./parts.js" */

/**
 * What the dialog shows. `request` counts requests, so that only the newest is shown.
 * @typedef {{index: number, model: string | null, trials: TrialView[], more: boolean, problem: string | null,
 *   busy: boolean, request: number}} Shown
 */

const PAD = 3;

/**
 * A dialog on questions; `fetchTrials(question, model, after)` is null where no texts are available.
 * @param {State} state
 * @param {((question: number, model: number, after: number | null) => Promise<AnswersPage>) | null} fetchTrials
 */
export function questionDialog(state, fetchTrials) {
  const body = h("div", { class: "body" });
  const close = h("button", { class: "close", "aria-label": "Close" }, "×");
  const dialog = h("dialog", { "aria-labelledby": "question-title" }, h("form", { method: "dialog" }, close), body);
  document.body.append(dialog);
  const empty = { trials: [], more: false, problem: null };
  /** @type {Shown} */
  const shown = { index: 0, model: null, ...empty, busy: false, request: 0 };

  const draw = () => update(body, h("div", null, content(state, shown, fetchTrials !== null)));
  const load = async () => {
    if (!fetchTrials || shown.model === null) return;
    const request = (shown.request += 1);
    shown.busy = true;
    draw();
    const after = shown.trials.at(-1)?.trial ?? null;
    try {
      const { trials, more } = await fetchTrials(shown.index, entry(state.facts.columnOf, shown.model), after);
      if (request !== shown.request) return;
      Object.assign(shown, { trials: [...shown.trials, ...trials], more, problem: null });
    } catch (error) {
      if (request !== shown.request) return;
      shown.problem = `The answers could not be read: ${messageOf(error)}`;
    }
    shown.busy = false;
    draw();
  };
  const choose = (/** @type {string} */ model) => {
    Object.assign(shown, { model, ...empty });
    draw();
    load();
  };
  on(dialog, "click", "[data-model]", (button) => choose(button.dataset.model ?? ""));
  on(dialog, "click", "[data-next]", load);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const open = (/** @type {number} */ index, /** @type {string | null} */ model = null) => {
    shown.index = index;
    if (!dialog.open) dialog.showModal();
    choose(model ?? state.facts.names[0]);
    body.scrollTop = 0;
  };
  return { open, redraw: () => dialog.open && draw() };
}

/** A text that others wrote. @param {Child} text */
function foreign(text, direction = "auto") {
  return h("pre", { class: "foreign", dir: direction }, text);
}

/** @param {State} state @param {Shown} shown @param {boolean} hasAnswers */
function content(state, shown, hasAnswers) {
  const { id, cluster, prompt, choices, answer } = state.view.questions[shown.index];
  const items = choices.map((choice) => h("li", { dir: "auto" }, visible(choice)));
  return [
    h("h2", { id: "question-title" }, "Question ", name(id, 80)),
    cluster === null ? null : note("cluster ", name(cluster, 80)),
    foreign(visible(prompt)),
    items.length ? h("ol", { class: "choices", type: "A" }, items) : null,
    h("p", null, "Answer key: ", h("code", { dir: "auto" }, visible(answer))),
    posteriors(state, shown, hasAnswers),
    hasAnswers ? trials(state, shown) : null,
  ];
}

/** @param {State} state @param {Shown} shown @param {boolean} hasAnswers */
function posteriors({ view, facts }, shown, hasAnswers) {
  const place = linear(facts.low, facts.high, PAD, 100 - PAD);
  const x = (/** @type {number} */ value) => `${place(value).toFixed(2)}%`;
  const label = (/** @type {string} */ model) => {
    const choice = { "data-model": model, "aria-pressed": String(model === shown.model) };
    return hasAnswers ? h("button", { type: "button", class: "link", ...choice }, name(model, 40)) : name(model, 40);
  };
  const rows = facts.names.map((model) => {
    const posterior = posteriorOf(view, facts, model, shown.index);
    return { model, posterior, isAsked: posterior.counts.some(Boolean) };
  });
  const bounds = (/** @type {PosteriorView} */ { lo, hi }) => interval(facts, lo, hi);
  const forest = (/** @type {PosteriorView} */ { mean, lo, hi }) =>
    intervalPlot(x, { value: mean, lo, hi }, [], interval(facts, lo, hi));
  return table({
    className: hasAnswers ? "tall low" : "",
    caption: `What is known of each model on it${hasAnswers ? "; choose one for its answers" : ""}`,
    shown: hasAnswers,
    rows,
    key: ({ model }) => model,
    columns: [
      ["Model", ({ model }) => label(model)],
      ["Answers", ({ posterior }) => countsText(view, posterior.counts)],
      [term("bayes", "Posterior mean"), ({ posterior, isAsked }) => (isAsked ? score(facts, posterior.mean) : "–")],
      ["95% interval", ({ posterior, isAsked }) => (isAsked ? bounds(posterior) : "–")],
      [
        `from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}`,
        ({ posterior, isAsked }) => (isAsked ? forest(posterior) : ""),
      ],
    ],
  });
}

/** @param {State} state @param {Shown} shown */
function trials({ view }, { model, trials, problem, busy, more }) {
  const answers = trials.map((trial) => answer(view, trial));
  const next = { type: "button", class: "more", "data-next": "" };
  return h("section", { "data-key": `trials-${model}`, "aria-label": "Answers" }, [
    h("h3", null, "Answers of ", name(model, 60)),
    h("div", { class: "answers" }, answers),
    problem ? h("p", { class: "problem", role: "alert" }, plain(problem, 400)) : null,
    busy ? h("p", { class: "quiet", role: "status" }, "Reading …") : null,
    !busy && !problem && !trials.length ? h("p", { class: "quiet" }, "There are none yet.") : null,
    more && !busy ? h("button", next, "Show more answers") : null,
  ]);
}

/** @param {TrialView} trial */
function isOfInspect(trial) {
  return trial.replica.startsWith(`${INSPECT_LOGS}/`);
}

/** @param {PageView} view @param {TrialView} trial */
function answer(view, trial) {
  const grade = trial.category === null ? "not graded" : categoryName(view, trial.category);
  const isBest = trial.value !== null && trial.value === Math.max(...view.weights);
  const kind = trial.category === null ? "failed" : isBest ? "best" : "";
  /** @type {[string, unknown][]} */
  const facts = [
    ["extracted", trial.extracted],
    ["grader error", trial.grader_error],
    ["signals", signals(trial.signals)],
    ["finish reason", trial.finish_reason],
    ["seed", trial.seed],
    [isOfInspect(trial) ? "Inspect’s log" : "server", trial.replica],
    ["attempts", trial.attempts > 1 ? trial.attempts : null],
    ["bits per token", rounded(trial.completion_bpt)],
  ];
  return h("details", { class: "answer", "data-key": String(trial.trial) }, [
    h("summary", null, [
      h("span", { class: "digits" }, `#${trial.trial}`),
      h("span", { class: `grade ${kind}` }, grade),
      h("span", { class: "extracted" }, plain(trial.extracted ?? "", 40)),
      h("span", { class: "quiet digits" }, `${plural(trial.completion_tokens, "token")}, ${duration(trial.latency)}`),
    ]),
    factList(facts.map(([label, value]) => [label, value === null ? null : plain(value, 600)])),
    trial.reasoning ? folded("Reasoning", foreign(visible(trial.reasoning))) : null,
    textOrEmpty(trial.text),
    trial.tokens.length ? tokenList(trial) : null,
  ]);
}

/** @param {string} title @param {Child} content */
function folded(title, content) {
  return h("details", { class: "reasoning" }, h("summary", null, title), content);
}

/** @param {string} text */
function textOrEmpty(text) {
  return foreign(text ? visible(text) : h("span", { class: "quiet" }, "(empty)"));
}

/** The first tokens of an answer with the probability of each. @param {TrialView} trial */
function tokenList({ tokens, completion_tokens }) {
  const lines = tokens.map(([token, logprob]) => {
    const chance = logprob === null ? "?" : `${(100 * Math.exp(logprob)).toFixed(1)}%`;
    return `${chance.padStart(6)}  ${JSON.stringify(token)}`;
  });
  const which = tokens.length >= completion_tokens ? "its" : "the first";
  const title = `Probabilities of ${which} ${plural(tokens.length, "token")}`;
  return folded(title, foreign(visible(lines.join("\n")), "ltr"));
}

/** A number with no more digits than anybody reads; anything else as it is. @template Value @param {Value} value */
function rounded(value) {
  return typeof value === "number" ? Number(value.toPrecision(4)) : value;
}

/** Signals that are set: a yes by its name, others with their value. @param {Record<string, unknown>} signals */
function signals(signals) {
  if (Array.isArray(signals)) return signals.join(", ");
  const present = Object.entries(signals ?? {}).filter(([, value]) => value !== false && value !== null);
  return present.map(([key, value]) => (value === true ? key : `${key} ${rounded(value)}`)).join(", ");
}
