// How to repeat the run: how answers were sampled and graded, and the configuration.

import { h } from "./dom.js";
import { blocks, factList, note, region } from "./parts.js";
import { plain, visible } from "./text.js";
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
      h("h3", null, "Configuration"),
      note("Settings at their defaults are not shown; keys and secrets never are."),
      region("Configuration", "tall", h("pre", { class: "yaml" }, visible(view.published))),
    ];
  },
};
