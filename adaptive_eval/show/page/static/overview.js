// What stands around the ranking: the state of the run, what it cost, and how it was decided.

import { budget, inShort, tiles } from "./costs.js";
import { h } from "./dom.js";
import { blocks, sumOf } from "./parts.js";
import { moment, name, plain, plural } from "./text.js";
/** @import { Section, State } from "./parts.js" */

/** @type {Section} */
export const cost = {
  id: "cost",
  title: "What it cost",
  shown: true,
  render: (state) => [tiles(state), warnings(state.view), blocks(state.view, "costs"), budget(state)],
};

/** @type {Section} */
export const decided = {
  id: "decided",
  title: "How it was decided",
  shown: true,
  render({ view }) {
    const { objective, rule, promise, allocation } = view.words;
    const rows = [
      ["Objective", objective],
      ["Rule", rule],
      ["Promise", promise],
      ["Allocation", allocation],
      ["Same seeds", view.by_trial.join(" ")],
    ].filter(([, text]) => text);
    const entries = rows.map(([label, text]) => h("div", null, h("dt", null, label), h("dd", null, plain(text, 2000))));
    return [h("dl", { class: "promise" }, entries)];
  },
};

/** Outcomes of a gate, the worst first. */
const OUTCOMES = ["FAIL", "open", "UNDECIDED", "PASS"];

/** The worst outcome of a gate; undefined if there is none. @param {PageView} view */
function worstOutcome({ results }) {
  return OUTCOMES.find((outcome) => results?.gate.some((row) => row.outcome === outcome));
}

/** The run's state in one word: of a finished gate its outcome. @param {PageView} view @param {boolean} live */
export function statusOf(view, live) {
  const status = view.results?.run.status;
  if (status) return (status === "finished" && worstOutcome(view)) || status;
  if (live || (view.ended === null && view.stopped === null)) return "running";
  const word = /^(UNDECIDED|killed|finished)/i.exec(view.ended ?? "")?.[0];
  return word?.replace(/[KF]/, (letter) => letter.toLowerCase()) ?? "stopped";
}

/** The finding in a sentence, and the state of the run. @param {State} state */
export function headline({ view, live }) {
  if (!view.results) {
    const trials = sumOf(view.trials.flat(), Number);
    return [
      `No look has been taken yet: ${plural(trials, "trial")} so far. `,
      live ? "The ranking appears with the first complete round." : ending(view),
    ];
  }
  const outcome = worstOutcome(view);
  const end = view.results.run.status === "running" ? "Running." : ending(view);
  const findings = view.finding.map((line) => {
    const own = outcome && OUTCOMES.find((word) => line.startsWith(`${word}: `));
    return [h("b", { class: own ? `gate-${own}` : null }, plain(line, 2000)), " "];
  });
  // a gate that has ended has said its end as its finding
  const isSaid = outcome && view.stopped === null && end.startsWith(outcome);
  return [
    findings,
    isSaid ? null : h("span", { class: "quiet" }, end),
    view.counted === null ? null : [" ", h("span", { class: "quiet" }, view.counted)],
  ];
}

/** What to do next, each command on a line of its own. @param {PageView} view */
export function nextSteps(view) {
  if (!view.next_steps.length) return null;
  const steps = view.next_steps.map(({ text, command }, index) => [
    h("p", null, index ? null : h("b", null, "Next: "), plain(text, 1000)),
    command === null ? null : h("pre", { class: "command" }, plain(command, 4000)),
  ]);
  return h("div", { class: "next" }, steps);
}

/** How the run has ended; if by an error or alarm, its first line. @param {PageView} view */
function ending({ stopped, ended }) {
  return plain(stopped === null ? (ended ?? "") : `S${stopped.slice(1).replace(/[.:]$/, "")}.`, 1000);
}

/** @param {PageView} view */
function warnings(view) {
  const rows = view.results?.warnings ?? [];
  if (!rows.length) return null;
  const items = rows.map(({ kind, model, text }) =>
    h("li", null, [
      h("span", { class: "kind" }, plain(kind)),
      model === null ? null : [h("b", null, name(model, 60)), ": "],
      plain(text, 1000),
    ]),
  );
  return h("div", { class: "warnings" }, h("h3", null, plural(rows.length, "warning")), h("ul", null, items));
}

/** The line under the run's name: its size, its cost, and where the answers are. @param {PageView} view */
export function subtitle(view) {
  const run = view.results?.run;
  return [
    plural(view.models.length, "model"),
    " · ",
    h("a", { href: "#questions" }, plural(view.questions.length, "question")),
    view.results && run?.status !== "running" ? [" · ", inShort(view.results.cost)] : null, // else the tiles are newer
    run ? [" · as of ", moment(run.updated)] : view.events.length ? [" · begun ", moment(view.events[0].at)] : null,
  ];
}
