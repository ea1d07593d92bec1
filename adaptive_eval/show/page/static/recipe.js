// How to repeat the run: how answers were sampled and graded, and the configuration.

import { h } from "./dom.js";
import { blocks, factList, note, region, titledTable } from "./parts.js";
import { count, name, plain, visible } from "./text.js";
/** @import { Section } from "./parts.js" */

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
      blocks(view, "recipe"),
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
