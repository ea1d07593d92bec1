// How to repeat the run: how answers were sampled and graded, and the configuration.

import { h } from "./dom.js";
import { column, factList, note, region, table, titledTable } from "./parts.js";
import { count, listed, name, plain, visible } from "./text.js";
/** @import { Section } from "./parts.js" */

/** @typedef {{settings: Map<string, unknown>, names: string[]}} Group of models that were asked alike */

const SERVER_DEFAULT = "server default";

/** @type {Section} */
export const recipe = {
  id: "repeat",
  title: "How to repeat this run",
  render({ view }) {
    const run = view.results?.run;
    return [
      factList([
        ["adaptive-eval", run ? plain(run.version) : null],
        ["seeds of trials", plain(view.words.seeds, 400)],
        ["estimates", plain(view.words.prior, 400)],
        ["thresholds", view.thresholds ? plain(view.thresholds, 2000) : null],
      ]),
      titledTable({
        caption: "Rubric",
        texts: 2,
        rows: view.weights.map((weight, category) => ({ category, name: view.categories[category] ?? "–", weight })),
        columns: [
          ["Category", ({ category }) => category],
          ["Name", (row) => name(row.name, 60)],
          ["Weight", ({ weight }) => weight],
        ],
      }),
      sampling(view),
      titledTable({
        caption: "Servers that the run has started",
        texts: 3,
        rows: view.results?.servers ?? [],
        columns: [
          ["Model", ({ model }) => name(model, 60)],
          ["Command", ({ command }) => h("code", { class: "wrap" }, plain(command.join(" "), 2000))],
          ["Version", ({ version }) => plain(version ?? "–", 80)],
          ["Starts", ({ starts }) => count(starts)],
        ],
      }),
      h("h3", null, "Configuration"),
      note("Settings at their defaults are not shown; keys and secrets never are."),
      region("Configuration", "tall", h("pre", { class: "yaml" }, visible(view.published))),
    ];
  },
};

/** @param {unknown} value */
function shown(value) {
  if (value === null || value === undefined) return null;
  return plain(typeof value === "object" ? JSON.stringify(value) : value, 200);
}

/** How answers were sampled; models that were asked alike share a row. @param {RunView} view */
function sampling(view) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const model of view.results?.models ?? []) {
    if (model.recorded) continue; // its own run has its settings
    const settings = Object.entries(model.sampling);
    const key = JSON.stringify(settings);
    const group = groups.get(key) ?? { settings: new Map(settings), names: /** @type {string[]} */ ([]) };
    groups.set(key, group);
    group.names.push(model.name);
  }
  const rows = [...groups.values()];
  const keys = [...new Set(rows.flatMap(({ settings }) => [...settings.keys()]))];
  if (!keys.length) return null;
  const isChosen = (/** @type {string} */ key) =>
    rows.some(({ settings }) => (settings.get(key) ?? SERVER_DEFAULT) !== SERVER_DEFAULT);
  const nameOf = (/** @type {string} */ key) => plain(key.replaceAll("_", " "));
  const models = (/** @type {Group} */ { names }) =>
    names.length > 1 && rows.length === 1 ? `all ${names.length} models` : plain(listed(names), 400);
  const defaults = keys.filter((key) => !isChosen(key)).map(nameOf);
  return [
    h("h3", null, "Sampling"),
    table({
      caption: "Sampling settings of each model",
      rows,
      columns: [
        ["Model", (group) => h("span", { class: "names" }, models(group))],
        ...keys
          .filter(isChosen)
          .map((key) => column(nameOf(key), (/** @type {Group} */ { settings }) => shown(settings.get(key) ?? "–"))),
      ],
    }),
    defaults.length ? note("Left to the servers: ", listed(defaults), ".") : null,
  ];
}
