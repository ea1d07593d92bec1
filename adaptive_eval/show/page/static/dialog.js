// A question whole: what was asked, what is known of every model on it, and (beside a live server) the answers.

import { linear } from "./chart.js";
import { h, on, s, update } from "./dom.js";
import { interval, score } from "./facts.js";
import { factList, region, table } from "./parts.js";
import { count, duration, name, plain, plural, usd, visible } from "./text.js";

const FOREST = { width: 220, height: 20, pad: 6 };

/** A dialog on questions; `fetchTrials(question, model, after)` is null where no texts are to be had. */
export function questionDialog(state, fetchTrials) {
  const body = h("div", { class: "body" });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "question-title" },
    h("form", { method: "dialog" }, h("button", { class: "close", "aria-label": "Close" }, "×")),
    body,
  );
  document.body.append(dialog);
  const seen = { index: 0, model: null, trials: [], more: false, problem: null, busy: false, ask: 0 };

  const draw = () => update(body, h("div", null, content(state, seen, fetchTrials !== null)));
  const load = async () => {
    if (!fetchTrials || seen.model === null) return;
    const ask = (seen.ask += 1);
    seen.busy = true;
    draw();
    try {
      const found = await fetchTrials(
        seen.index,
        state.facts.columnOf.get(seen.model),
        seen.trials.at(-1)?.trial ?? null,
      );
      if (ask !== seen.ask) return;
      seen.trials = [...seen.trials, ...found.trials];
      Object.assign(seen, { more: found.more, problem: null });
    } catch (error) {
      if (ask !== seen.ask) return;
      seen.problem = `The answers could not be read: ${error.message}`;
    }
    seen.busy = false;
    draw();
  };
  const choose = (model) => {
    Object.assign(seen, { model, trials: [], more: false, problem: null });
    draw();
    load();
  };

  on(dialog, "click", "[data-model]", (button) => choose(button.getAttribute("data-model")));
  on(dialog, "click", "[data-next]", load);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const open = (index, model = null) => {
    seen.index = index;
    if (!dialog.open) dialog.showModal();
    choose(model ?? state.facts.names[0]);
    body.scrollTop = 0;
  };
  return { open, redraw: () => dialog.open && draw() };
}

function content(state, seen, answers) {
  const { view, facts } = state;
  const question = view.questions[seen.index];
  const row = view.results?.questions[seen.index];
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
    row ? known(row, facts, seen, answers) : null,
    answers ? trials(state, seen) : null,
  ];
}

function known(row, facts, seen, answers) {
  const x = linear(facts.low, facts.high, FOREST.pad, FOREST.width - FOREST.pad);
  const model = (text) =>
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
        "Trials",
        "Mean",
        "95% interval",
        `from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}`,
      ],
      key: (at) => facts.names[at],
      rows: facts.names.map((text, at) => {
        const known = row.trials[at] > 0;
        return [
          model(text),
          count(row.trials[at]),
          known ? score(facts, row.mean[at]) : "–",
          known ? interval(facts, row.lo[at], row.hi[at]) : "–",
          known ? forest(row, at, x) : "",
        ];
      }),
    }),
  );
}

function forest(row, at, x) {
  const middle = FOREST.height / 2;
  return s(
    "svg",
    {
      viewBox: `0 0 ${FOREST.width} ${FOREST.height}`,
      width: FOREST.width,
      height: FOREST.height,
      "aria-hidden": "true",
    },
    s("line", { class: "grid", x1: FOREST.pad, x2: FOREST.width - FOREST.pad, y1: middle, y2: middle }),
    s("line", { class: "whisker", x1: x(row.lo[at]), x2: x(row.hi[at]), y1: middle, y2: middle }),
    s("circle", { class: "dot", cx: x(row.mean[at]), cy: middle, r: 3.5 }),
  );
}

function trials(state, seen) {
  const { view } = state;
  return h(
    "section",
    { "data-key": `trials-${seen.model}`, "aria-label": "Answers" },
    h("h3", null, "Answers of ", name(seen.model, 60)),
    h(
      "div",
      { class: "answers" },
      seen.trials.map((trial) => answer(view, trial)),
    ),
    seen.problem ? h("p", { class: "problem", role: "alert" }, plain(seen.problem, 400)) : null,
    seen.busy ? h("p", { class: "quiet", role: "status" }, "Reading …") : null,
    !seen.busy && !seen.problem && !seen.trials.length ? h("p", { class: "quiet" }, "There are none yet.") : null,
    seen.more && !seen.busy
      ? h("button", { type: "button", class: "more", "data-next": "" }, "Show more answers")
      : null,
  );
}

function answer(view, trial) {
  const grade =
    trial.category === null ? "not graded" : plain(view.categories[trial.category] ?? `category ${trial.category}`, 40);
  const best = trial.value !== null && trial.value === Math.max(...view.weights);
  const facts = [
    ["extracted", trial.extracted],
    ["grader error", trial.grader_error],
    ["signals", signals(trial.signals)],
    ["finish reason", trial.finish_reason],
    ["seed", trial.seed],
    ["server", trial.replica],
    ["attempts", trial.attempts > 1 ? trial.attempts : null],
    ["bits per token", trial.completion_bpt],
    ["cost", trial.usd ? usd(trial.usd) : null],
  ].map(([label, value]) => [label, value === null || value === undefined ? null : plain(value, 600)]);
  return h(
    "details",
    { class: "answer", "data-key": String(trial.trial) },
    h(
      "summary",
      null,
      h("span", { class: "digits" }, `#${trial.trial}`),
      h("span", { class: `grade ${trial.category === null ? "failed" : best ? "best" : ""}` }, grade),
      h("span", { class: "extracted" }, plain(trial.extracted ?? "", 40)),
      h("span", { class: "quiet digits" }, `${plural(trial.completion_tokens, "token")}, ${duration(trial.latency)}`),
    ),
    factList(facts),
    trial.reasoning
      ? h(
          "details",
          { class: "reasoning" },
          h("summary", null, "Reasoning"),
          h("pre", { class: "foreign", dir: "auto" }, visible(trial.reasoning)),
        )
      : null,
    h(
      "pre",
      { class: "foreign", dir: "auto" },
      trial.text ? visible(trial.text) : h("span", { class: "quiet" }, "(empty)"),
    ),
  );
}

/** Signals that are set: a plain yes by its name, anything else with its value; several kinds come as one mapping. */
function signals(given) {
  if (Array.isArray(given)) return given.join(", ");
  return Object.entries(given ?? {})
    .filter(([, value]) => value !== false && value !== null)
    .map(([key, value]) => (value === true ? key : `${key} ${value}`))
    .join(", ");
}
