// How to repeat the run: how answers were sampled and graded, and the whole configuration.

import { h } from "./dom.js";
import { column, factList, note, region, table, titledTable } from "./parts.js";
import { count, listed, name, plain, visible } from "./text.js";
import { yaml } from "./yaml.js";
/** @import { Section } from "./parts.js" */

/** @typedef {{settings: Map<string, unknown>, names: string[]}} Group of models that were asked alike */

const SERVER_DEFAULT = "server default";
/** The order in which people write a configuration. */
const ORDER = "name seed questions models prompt sampling grader rubric objective stopping trials budget".split(" ");
const OWN_KEYS = ["name", "model", "base_url"];
const SHARED_KEYS = ["sampling", "prompt", "concurrency"];

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
      note("Empty settings are not shown; keys and secrets never are."),
      region("Configuration", "tall", h("pre", { class: "yaml" }, visible(yaml(tidied(view.configuration))))),
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
  // the results have what the requests carry; before there are any, the configuration has what they would
  for (const model of view.results?.models ?? view.configuration.models) {
    if (model.recorded) continue; // its own run has its settings
    const settings = Object.entries(model.sampling).filter(([, value]) => isPresent(value) && value !== false);
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

/** The configuration as people write it, without empty settings. @param {Record<string, any>} configuration */
function tidied({ store, folder, ...settings }) {
  const whole = withoutEmpty(ordered(settings, ORDER));
  const models = whole.models?.map((/** @type {Record<string, any>} */ model) => {
    const isOwn = (/** @type {string} */ key) =>
      !(SHARED_KEYS.includes(key) && JSON.stringify(model[key]) === JSON.stringify(whole[key])) &&
      !(model.simulate && key === "base_url"); // the simulator has a new address at every start
    return Object.fromEntries(Object.entries(ordered(model, OWN_KEYS)).filter(([key]) => isOwn(key)));
  });
  return models ? { ...whole, models } : whole;
}

/** @param {Record<string, any>} settings @param {string[]} first */
function ordered(settings, first) {
  const keys = [...new Set([...first, ...Object.keys(settings)])].filter((key) => key in settings);
  return Object.fromEntries(keys.map((key) => [key, settings[key]]));
}

/** @param {any} value @returns {any} */
function withoutEmpty(value) {
  if (Array.isArray(value)) return value.map(withoutEmpty);
  if (value === null || typeof value !== "object") return value;
  const settings = Object.entries(value).map(([key, setting]) => [key, withoutEmpty(setting)]);
  return Object.fromEntries(settings.filter(([, setting]) => isPresent(setting)));
}

/** @param {unknown} value */
function isPresent(value) {
  return !(value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0));
}
