// How to repeat the run: what decides, how answers were sampled and graded, and the configuration whole.

import { h, on } from "./dom.js";
import { factList, region, table } from "./parts.js";
import { count, listed, name, plain, visible } from "./text.js";
import { yaml } from "./yaml.js";
/** @import { Section } from "./parts.js" */

/** @typedef {{settings: Map<string, unknown>, names: string[]}} Group */

/** @type {Section} */
export const recipe = {
  id: "repeat",
  title: "How to repeat this run",
  render({ view }) {
    const configuration = tidy(view.configuration);
    const run = view.results?.run;
    return [
      factList([
        ["adaptive-eval", run ? plain(run.version) : null],
        ["seed", shown(view.configuration.seed)],
        ["grader", shown(view.configuration.grader.kind)],
        ["seeds of trials", plain(view.words.seeds, 400)],
        ["estimates", plain(view.words.prior, 400)],
        ["thresholds", view.thresholds ? plain(view.thresholds, 2000) : null],
      ]),
      rubric(view),
      sampling(view),
      servers(view),
      h("h3", null, "Configuration"),
      h("p", { class: "note" }, [
        "Settings that were left at nothing are not shown; keys and secrets never are. ",
        h("button", { type: "button", class: "small", "data-copy": "" }, "Copy"),
      ]),
      region("Configuration", "tall", h("pre", { class: "yaml" }, visible(yaml(configuration)))),
    ];
  },
  wire(root, state) {
    on(root, "click", "[data-copy]", async (button) => {
      const done = await copied(yaml(tidy(state.view.configuration)));
      button.textContent = done ? "Copied" : "Select the text and copy it";
    });
  },
};

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {unknown} value */
function shown(value) {
  return value === null || value === undefined
    ? null
    : plain(typeof value === "object" ? JSON.stringify(value) : value, 200);
}

/** @param {RunView} view */
function rubric(view) {
  const rows = view.weights.map((weight, at) => [at, name(view.categories[at] ?? "–", 60), weight]);
  return [
    h("h3", null, "Rubric"),
    h(
      "div",
      { class: "scroll" },
      table({ caption: "Categories and their weights", head: ["Category", "Name", "Weight"], texts: 2, rows }),
    ),
  ];
}

/** How answers were drawn; models that were asked alike share a row. @param {RunView} view */
function sampling(view) {
  const groups = new Map();
  // the results say what the requests carry; before there are any, the configuration says what they would
  for (const model of view.results?.models ?? view.configuration.models) {
    if (model.recorded) continue; // it was asked as its own run says
    const settings = Object.entries(model.sampling).filter(([, value]) => present(value) && value !== false);
    const key = JSON.stringify(settings);
    if (!groups.has(key)) groups.set(key, { settings: new Map(settings), names: [] });
    groups.get(key).names.push(model.name);
  }
  const all = [...groups.values()];
  const keys = [...new Set(all.flatMap((group) => [...group.settings.keys()]))];
  const chosen = keys.filter((key) => all.some((group) => (group.settings.get(key) ?? LEFT) !== LEFT));
  const left = keys.filter((key) => !chosen.includes(key));
  return keys.length
    ? [
        h("h3", null, "Sampling"),
        chosen.length ? samplingTable(all, chosen) : null,
        left.length ? h("p", { class: "note" }, "Left to the servers: ", listed(left.map(settingName)), ".") : null,
      ]
    : null;
}

/** @param {Group[]} groups @param {string[]} keys */
function samplingTable(groups, keys) {
  const who = (/** @type {string[]} */ names) =>
    names.length > 1 && groups.length === 1 ? `all ${names.length} models` : plain(listed(names), 400);
  const rows = groups.map((group) => [
    h("span", { class: "names" }, who(group.names)),
    ...keys.map((key) => shown(group.settings.get(key) ?? "–")),
  ]);
  const caption = "Sampling settings of each model";
  return region("Sampling settings", "", table({ caption, head: ["Model", ...keys.map(settingName)], rows }));
}

/** @param {string} key */
function settingName(key) {
  return plain(key.replaceAll("_", " "));
}

/** The servers that the run has started itself. @param {RunView} view */
function servers(view) {
  const rows = (view.results?.servers ?? []).map((one) => [
    name(one.model, 60),
    h("code", { class: "wrap" }, plain(one.command.join(" "), 2000)),
    plain(one.version ?? "–", 80),
    count(one.starts),
  ]);
  const title = "Servers that the run has started";
  const head = ["Model", "Command", "Version", "Starts"];
  return rows.length
    ? [h("h3", null, title), region(title, "", table({ caption: title, head, texts: 3, rows }))]
    : null;
}

const LEFT = "server default";
const ORDER = [
  "name",
  "seed",
  "trial_seeds",
  "questions",
  "models",
  "prompt",
  "sampling",
  "grader",
  "rubric",
  "objective",
  "stopping",
  "trials",
  "allocation",
  "budget",
  "concurrency",
];

/**
 * The configuration in the order in which people write it, without what says nothing.
 * @param {Record<string, any>} configuration
 */
function tidy(configuration) {
  const { store, folder, ...said } = configuration;
  const keys = [...ORDER.filter((key) => key in said), ...Object.keys(said).filter((key) => !ORDER.includes(key))];
  const whole = Object.fromEntries(keys.map((key) => [key, bare(said[key])]).filter(([, value]) => present(value)));
  if (Array.isArray(whole.models))
    whole.models = whole.models.map((/** @type {Record<string, any>} */ model) => own(model, whole));
  return whole;
}

/**
 * A model without the settings that it shares with the run.
 * @param {Record<string, any>} model @param {Record<string, any>} whole
 */
function own(model, whole) {
  const shared = (/** @type {string} */ key) =>
    ["sampling", "prompt", "concurrency"].includes(key) && JSON.stringify(model[key]) === JSON.stringify(whole[key]);
  const first = ["name", "model", "base_url"].filter((key) => key in model);
  const keys = [...first, ...Object.keys(model).filter((key) => !first.includes(key))];
  // the simulator's address is found anew at every start
  const said = keys.filter((key) => !shared(key) && !(model.simulate && key === "base_url"));
  return Object.fromEntries(said.map((key) => [key, model[key]]));
}

/** @param {any} value @returns {any} */
function bare(value) {
  if (Array.isArray(value)) return value.map(bare);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, one]) => [key, bare(one)])
      .filter(([, one]) => present(one)),
  );
}

/** @param {unknown} value */
function present(value) {
  return !(value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0));
}
