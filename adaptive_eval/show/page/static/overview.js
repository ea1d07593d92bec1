// What stands around the ranking: how the run stands, what it cost, and how it was decided.

import { besides, budget, inShort, tiles } from "./costs.js";
import { h } from "./dom.js";
import { moment, name, plain, plural } from "./text.js";
/** @import { Section, State } from "./parts.js" */

/** @type {Section} */
export const cost = {
  id: "cost",
  title: "What it cost",
  shown: true,
  render(state) {
    return [tiles(state), warnings(state.view), besides(state.view), budget(state)];
  },
};

/** @type {Section} */
export const decided = {
  id: "decided",
  title: "How it was decided",
  shown: true,
  render({ view }) {
    return [promise(view)];
  },
};

/** Outcomes of a gate, the worst first. */
const OUTCOMES = ["FAIL", "open", "UNDECIDED", "PASS"];

/** The worst outcome of a gate; undefined if there is none. @param {RunView} view */
function outcomeOf({ results }) {
  return OUTCOMES.find((one) => results?.gate.some((row) => row.outcome === one));
}

/** The run's state in one word: of a gate that is over its outcome. @param {RunView} view @param {boolean} live */
export function statusOf(view, live) {
  const status = view.results?.run.status;
  if (status) return (status === "finished" && outcomeOf(view)) || status;
  if (live || (view.ended === null && view.error === null)) return "running";
  return (
    /^(UNDECIDED|killed|finished)/i.exec(view.ended ?? "")?.[0].replace(/[KF]/, (one) => one.toLowerCase()) ?? "stopped"
  );
}

/** What was found, in a sentence, and how the run stands. @param {State} state */
export function headline({ view, live }) {
  if (!view.results) {
    const trials = view.trials.flat().reduce((sum, one) => sum + one, 0);
    return [
      `No look has been taken yet: ${plural(trials, "trial")} so far. `,
      live ? "The ranking appears with the first complete round." : ending(view),
    ];
  }
  const { run } = view.results;
  const outcome = outcomeOf(view);
  const why = run.status === "running" ? "Running." : ending(view);
  return [
    view.finding.map((line) => {
      const own = outcome && OUTCOMES.find((one) => line.startsWith(`${one}: `));
      return [h("b", { class: own ? `gate-${own}` : null }, plain(line, 2000)), " "];
    }),
    // the end of a gate is what it has found
    outcome && view.error === null && why.startsWith(outcome) ? null : h("span", { class: "quiet" }, why),
    view.counted === null ? null : [" ", h("span", { class: "quiet" }, view.counted)],
  ];
}

/** What to do next, each command on a line of its own. @param {RunView} view */
export function nextSteps(view) {
  if (!view.next_steps.length) return null;
  const step = (/** @type {RunView["next_steps"][number]} */ { says, command }, /** @type {number} */ at) => [
    h("p", null, at ? null : h("b", null, "Next: "), plain(says, 1000)),
    command === null ? null : h("pre", { class: "command" }, plain(command, 4000)),
  ];
  return h("div", { class: "next" }, view.next_steps.map(step));
}

/** How the run has ended: of an error its first line. @param {RunView} view */
function ending(view) {
  const { error, ended } = view;
  return plain(error === null ? (ended ?? "") : `Stopped by an error: ${error.replace(/[.:]$/, "")}.`, 1000);
}

/** @param {RunView} view */
function promise(view) {
  const { words } = view;
  const rows = [
    ["Objective", words.objective],
    ["Rule", words.rule],
    ["Promise", words.promise],
    ["Allocation", words.allocation],
    ["Same seeds", view.by_trial.join(" ")],
  ];
  return h(
    "dl",
    { class: "promise" },
    rows
      .filter(([, text]) => text)
      .map(([label, text]) => h("div", null, h("dt", null, label), h("dd", null, plain(text, 2000)))),
  );
}

/** @param {RunView} view */
function warnings(view) {
  const all = view.results?.warnings ?? [];
  if (!all.length) return null;
  return h("div", { class: "warnings" }, [
    h("h3", null, plural(all.length, "warning")),
    h(
      "ul",
      null,
      all.map((one) =>
        h("li", null, [
          h("span", { class: "kind" }, plain(one.kind)),
          one.model === null ? null : [h("b", null, name(one.model, 60)), ": "],
          plain(one.text, 1000),
        ]),
      ),
    ),
  ]);
}

/** The line under the run's name: what it has, what it cost, and where the answers are. @param {RunView} view */
export function subtitle(view) {
  const run = view.results?.run;
  return [
    plural(view.models.length, "model"),
    " · ",
    h("a", { href: "#questions" }, plural(view.questions.length, "question"), " and their answers"),
    view.results && run?.status !== "running" ? [" · ", inShort(view.results.cost)] : null, // else the tiles are newer
    run ? [" · as of ", moment(run.updated)] : view.events.length ? [" · begun ", moment(view.events[0].at)] : null,
  ];
}
