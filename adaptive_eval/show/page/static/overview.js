// The top of the page: what was found, how far the run is, what was to be decided and what is promised.

import { badge } from "./chart.js";
import { besides, budget, tiles } from "./costs.js";
import { h } from "./dom.js";
import { VERDICTS, resultsOf, unit, verdictWord } from "./facts.js";
import { found } from "./finding.js";
import { term } from "./terms.js";
import { listed, moment, name, plain, plural } from "./text.js";
/** @import { Section, State } from "./parts.js" */
/** @import { RunView } from "./sent.js" */

/** @type {Section} */
export const overview = {
  id: "overview",
  title: "Overview",
  short: "Overview",
  render(state) {
    const { view } = state;
    return [
      h("p", { class: "lead" }, headline(state)),
      view.results?.gate.length ? gate(view) : null,
      view.results ? verdictBar(state) : null,
      tiles(state),
      besides(view),
      budget(state),
      promise(view),
      warnings(view),
    ];
  },
};

/** The run's state in one word, with what is known of why. @param {RunView} view @param {boolean} live */
export function statusOf(view, live) {
  if (view.results) return view.results.run.status;
  if (view.error !== null && !live) return "stopped";
  return live ? "running" : "not judged yet";
}

/** @param {State} state */
function headline({ view, facts, live }) {
  if (!view.results) {
    const trials = view.trials.flat().reduce((sum, one) => sum + one, 0);
    return [
      `No look has been taken yet: ${plural(trials, "trial")} so far. `,
      live ? "The ranking appears with the first complete round." : ending(view),
    ];
  }
  const why = view.results.run.status === "running" ? "Running." : ending(view);
  return [found(view, facts), " ", h("span", { class: "quiet" }, why)];
}

/** How the run has ended: of an error its first line. @param {RunView} view */
function ending(view) {
  return plain(view.error === null ? (view.ended ?? "") : `Stopped by an error: ${view.error}`, 1000);
}

/** What the gate says of every model. @param {RunView} view */
function gate(view) {
  return h(
    "ul",
    { class: "gate", "data-key": "gate" },
    resultsOf(view).gate.map((row) =>
      h(
        "li",
        { "data-key": row.model },
        h("b", { class: `gate-${row.outcome}` }, term("gate", row.outcome)),
        " ",
        name(row.model, 40),
        ": ",
        plain(row.why, 300),
      ),
    ),
  );
}

/** @param {State} state */
function verdictBar({ view, facts }) {
  const total = resultsOf(view).pairs.length;
  if (!total) return null;
  const shown = VERDICTS.filter((verdict) => facts.verdicts[verdict]);
  const text = listed(shown.map((verdict) => `${facts.verdicts[verdict]} ${verdictWord(verdict)}`));
  return h(
    "div",
    { class: "verdicts" },
    h(
      "div",
      { class: "bar", role: "img", "aria-label": `${plural(total, unit(facts))}: ${text}` },
      shown.map((verdict) => h("span", { class: `v-${verdict}`, style: { "flex-grow": facts.verdicts[verdict] } })),
    ),
    h(
      "ul",
      { class: "legend" },
      shown.map((verdict) =>
        h("li", null, badge(verdict, [`${facts.verdicts[verdict]} `, term(verdict, verdictWord(verdict))])),
      ),
    ),
    h("span", { class: "quiet" }, `of ${plural(total, unit(facts))}`),
  );
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
  return h(
    "div",
    { class: "warnings" },
    h("h3", null, plural(all.length, "warning")),
    h(
      "ul",
      null,
      all.map((one) =>
        h(
          "li",
          null,
          h("span", { class: "kind" }, plain(one.kind)),
          one.model === null ? null : [h("b", null, name(one.model, 60)), ": "],
          plain(one.text, 1000),
        ),
      ),
    ),
  );
}

/** The line under the run's name. @param {RunView} view */
export function subtitle(view) {
  const run = view.results?.run;
  return [
    plural(view.models.length, "model"),
    " · ",
    plural(view.questions.length, "question"),
    run
      ? [" · begun ", moment(run.created), " · as of ", moment(run.updated)]
      : view.events.length
        ? [" · begun ", moment(view.events[0].at)]
        : null,
  ];
}
