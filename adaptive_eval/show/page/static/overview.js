// What stands around the ranking: the state of the run, what it cost, and how it was decided.

import { budget, tiles } from "./costs.js";
import { h } from "./dom.js";
import { blocks } from "./parts.js";
import { moment, name, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

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

/** The finding in a sentence, and the state of the run. @param {PageView} view */
export function headline({ findings }) {
  const sentences = findings.headline.map((line) => {
    const outcome = /^(FAIL|open|UNDECIDED|PASS): /.exec(line)?.[1];
    return [h("b", { class: outcome ? `gate-${outcome}` : null }, plain(line, 2000)), " "];
  });
  const end = findings.state === "running" ? "Running." : findings.ended;
  return [
    sentences,
    end === null ? null : h("span", { class: "quiet" }, plain(end, 1000)),
    findings.counted === null ? null : [" ", h("span", { class: "quiet" }, findings.counted)],
  ];
}

/** What to do next, each command on a line of its own. @param {PageView} view */
export function nextSteps({ findings }) {
  if (!findings.steps.length) return null;
  const steps = findings.steps.map(({ text, command }, index) => [
    h("p", null, index ? null : h("b", null, "Next: "), plain(text, 1000)),
    command === null ? null : h("pre", { class: "command" }, plain(command, 4000)),
  ]);
  return h("div", { class: "next" }, steps);
}

/** @param {PageView} view */
function warnings(view) {
  const rows = view.results?.warnings ?? [];
  if (!rows.length) return null;
  const items = rows.map(({ model, text }) =>
    h("li", null, [model === null ? null : [h("b", null, name(model, 60)), ": "], plain(text, 1000)]),
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
    run && run.status !== "running" ? [" · ", view.findings.cost] : null, // else the tiles are newer
    run ? [" · as of ", moment(run.updated)] : view.events.length ? [" · begun ", moment(view.events[0].at)] : null,
  ];
}
