// What is known of every question: posterior mean and interval of every model, one lane a model.

import { fitted, linear } from "./chart.js";
import { h, on, s } from "./dom.js";
import { countsText, interval, notJudged, posteriorOf, score } from "./facts.js";
import { filterField, filtered, sortHeading } from "./parts.js";
import { isWhole, partOf } from "./rows.js";
import { term } from "./terms.js";
import { count, name, plain, plural } from "./text.js";
import { hideTip, showTip } from "./tip.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section, Sort, State } from "./parts.js" */

/**
 * @typedef {object} Row
 * @property {PosteriorView[]} known
 * @property {number[]} trials
 * @property {number} index
 * @property {QuestionView} question
 * @property {number} mean
 * @property {number} spread
 */

const PAGE = 200;
const HEIGHT = 24;
const PAD = 5;
const SIDE = 250;
const HEAD = 130;

/** @type {Record<string, (row: Row) => number>} */
const VALUES = { order: (row) => row.index, mean: (row) => row.mean, spread: (row) => row.spread };

/** @type {Section} */
export const posteriors = {
  id: "questions",
  title: "Questions",
  render(state) {
    const { view, facts, ui } = state;
    const rows = sorted(filtered(rowsOf(view, facts), ui.filter ?? "", textsOf), ui.sort, facts);
    const shown = rows.slice(0, ui.questions ?? PAGE);
    const lane = laneWidth(state);
    const lanes = facts.names.length;
    const unjudged = new Set(view.looks.length || view.results ? [] : facts.names.keys());
    return [
      h(
        "p",
        null,
        "The ",
        term("posterior", "posterior"),
        " of each model's score on each question: the bar is the 95% interval, the tick the mean, ",
        `on a lane from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}. `,
        "Choose a question to see everything about it.",
      ),
      fresh(view, facts),
      filterField({
        placeholder: "id, text or cluster",
        shown: rows.length,
        all: view.questions.length,
        unit: "question",
      }),
      h(
        "div",
        {
          class: "scroll tall high",
          "data-key": "table",
          tabindex: 0,
          role: "region",
          "aria-label": "Posteriors by question",
        },
        h(
          "table",
          { class: "posteriors", style: { width: `${SIDE + lanes * lane}px` } },
          h("caption", { class: "unseen" }, "Posterior mean and interval of each model on each question"),
          h(
            "colgroup",
            null,
            h("col", { style: { width: "130px" } }),
            h("col", { style: { width: "60px" } }),
            h("col", { style: { width: "60px" } }),
            h("col", { span: lanes, style: { width: `${lane}px` } }),
          ),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              sortHeading("order", ui.sort, "Question"),
              sortHeading("mean", ui.sort, "Mean", { class: "digits" }),
              sortHeading("spread", ui.sort, "Spread", { class: "digits" }),
              facts.names.map((model) => modelHeader(model, lane, ui.sort)),
            ),
          ),
          h(
            "tbody",
            null,
            shown.map((row, at) => questionRow(row, state, unjudged, lane, at)),
          ),
        ),
      ),
      shown.length < rows.length
        ? h(
            "button",
            { type: "button", class: "more", "data-more": "" },
            `Show ${count(Math.min(PAGE, rows.length - shown.length))} more questions`,
          )
        : null,
    ];
  },
  wire(root, state) {
    on(root, "input", "[data-filter]", (/** @type {HTMLInputElement} */ input) => {
      state.ui.filter = input.value;
      state.refresh("questions");
    });
    on(root, "click", "[data-sort]", (button) => {
      const { sort: by = "" } = button.dataset;
      const before = state.ui.sort?.by === by ? state.ui.sort : null;
      state.ui.sort = by === "order" && before ? null : { by, down: before ? !before.down : by !== "order" };
      state.refresh("questions");
    });
    on(root, "click", "[data-more]", () => {
      state.ui.questions = (state.ui.questions ?? PAGE) + PAGE;
      state.refresh("questions");
    });
    on(root, "click", "[data-open]", (button) => state.openQuestion(Number(button.getAttribute("data-open"))));
    on(root, "click", ".lanes", (lanes, event) =>
      state.openQuestion(Number(lanes.getAttribute("data-index")), modelAt(state, lanes, event)),
    );
    on(root, "pointermove", ".lanes", (lanes, event) => tipFor(state, lanes, event));
    on(root, "pointerout", ".lanes", hideTip);
  },
};

/** What no look has used, though it is shown here. @param {RunView} view @param {Facts} facts */
function fresh(view, facts) {
  const waiting = facts.names
    .map((model) => ({ model, many: notJudged(view, facts, model) }))
    .filter(({ many }) => many > 0);
  const total = waiting.reduce((sum, { many }) => sum + many, 0);
  if (!total) return null;
  const shown = waiting.slice(0, 6).map(({ model, many }) => `${plain(model, 40)} ${count(many)}`);
  const more = waiting.length > shown.length ? ` and ${waiting.length - shown.length} more` : "";
  const yet = view.results?.run.status === "finished" ? "" : " yet";
  return h(
    "p",
    { class: "fresh" },
    `All ${plural(
      view.trials.flat().reduce((sum, one) => sum + one, 0),
      "trial",
    )} that are graded count here; `,
    term("not_judged", "no look has judged"),
    ` ${count(total)} of them${yet}`,
    view.looks.length || view.results ? ` (${shown.join(", ")}${more}).` : ": the bars are hollow.",
  );
}

/** @param {RunView} view @param {Facts} facts @returns {Row[]} */
function rowsOf(view, facts) {
  return view.questions.map((question, index) => {
    const known = facts.names.map((model) => posteriorOf(view, facts, model, index));
    const trials = known.map((one) => one.counts.reduce((sum, many) => sum + many, 0));
    const asked = known.filter((_, model) => trials[model] > 0);
    const means = (asked.length ? asked : known).map((one) => one.mean);
    return {
      known,
      trials,
      index,
      question,
      mean: means.reduce((sum, one) => sum + one, 0) / means.length,
      spread: Math.max(...means) - Math.min(...means),
    };
  });
}

/** Where the filter looks. @param {Row} row */
function textsOf({ question }) {
  return [question.id, question.prompt, question.cluster ?? ""];
}

/** @param {Row[]} rows @param {Sort | null | undefined} sort @param {Facts} facts */
function sorted(rows, sort, facts) {
  if (!sort) return rows;
  const model = facts.rankOf.get(sort.by.slice("model:".length)) ?? -1;
  const value = VALUES[sort.by] ?? ((/** @type {Row} */ one) => one.known[model]?.mean ?? 0);
  return [...rows].sort((one, other) => (sort.down ? -1 : 1) * (value(one) - value(other)) || one.index - other.index);
}

/** @param {State} state */
function laneWidth({ width, facts, printing }) {
  return Math.floor(Math.min(150, Math.max(printing ? 30 : 44, (width - SIDE) / Math.max(1, facts.names.length))));
}

/** @param {string} model @param {number} lane @param {Sort | null | undefined} sort */
function modelHeader(model, lane, sort) {
  const by = `model:${model}`;
  const title = h("bdi", { class: "name" }, fitted(model, (lane < 90 ? HEAD : lane) - 14, 12.5, 600));
  return sortHeading(by, sort, title, {
    class: lane < 90 ? "upright" : "lane",
    "data-tip": plain(model),
    "data-key": by,
  });
}

/** @param {Row} row @param {State} state @param {Set<number>} unjudged @param {number} lane @param {number} at */
function questionRow(row, state, unjudged, lane, at) {
  const { facts } = state;
  const { id } = row.question;
  const lanes = facts.names.length;
  const whole = isWhole(state, "questions", at);
  return h(
    "tr",
    { "data-key": id, "data-unseen": whole ? null : partOf("questions", at) },
    h(
      "th",
      { scope: "row" },
      h(
        "button",
        { type: "button", class: "link", "data-open": row.index, "data-tip": id.length > 16 ? plain(id) : null },
        name(id, 17),
      ),
    ),
    h("td", { class: "digits" }, score(facts, row.mean, 0)),
    h("td", { class: "digits" }, score(facts, row.spread, 0)),
    h(
      "td",
      { colspan: lanes, class: "lanes", "data-index": row.index },
      whole ? drawn(row, facts, unjudged, lane, lanes) : null,
    ),
  );
}

/**
 * All lanes of a question as three paths, which is what keeps thousands of intervals quick.
 * @param {Row} row @param {Facts} facts @param {Set<number>} unjudged @param {number} lane @param {number} lanes
 */
function drawn(row, facts, unjudged, lane, lanes) {
  const middle = HEIGHT / 2;
  let [tracks, intervals, hollow, means, blanks] = ["", "", "", "", ""];
  for (let model = 0; model < lanes; model += 1) {
    const x = linear(facts.low, facts.high, model * lane + PAD, (model + 1) * lane - PAD);
    if (row.trials[model] === 0) {
      blanks += `M${x(facts.low).toFixed(1)} ${middle}H${x(facts.high).toFixed(1)}`;
      continue;
    }
    tracks += `M${x(facts.low).toFixed(1)} ${middle}H${x(facts.high).toFixed(1)}`;
    const { mean, lo, hi } = row.known[model];
    if (unjudged.has(model)) hollow += `M${x(lo).toFixed(1)} ${middle - 3}H${x(hi).toFixed(1)}v6H${x(lo).toFixed(1)}z`;
    else intervals += `M${x(lo).toFixed(1)} ${middle}H${x(hi).toFixed(1)}`;
    means += `M${x(mean).toFixed(1)} ${middle - 7}v14`;
  }
  const paths = { blank: blanks, track: tracks, interval: intervals, hollow, mean: means };
  return s(
    "svg",
    { width: lanes * lane, height: HEIGHT, "aria-hidden": "true" },
    Object.entries(paths).map(([name, d]) => (d ? s("path", { class: name, d }) : null)),
  );
}

/** @param {State} state @param {HTMLElement} lanes @param {MouseEvent} event */
function laneAt(state, lanes, event) {
  const at = Math.floor((event.clientX - lanes.getBoundingClientRect().left) / laneWidth(state));
  return Math.min(Math.max(at, 0), state.facts.names.length - 1);
}

/** @param {State} state @param {HTMLElement} lanes @param {MouseEvent} event */
function modelAt(state, lanes, event) {
  return state.facts.names[laneAt(state, lanes, event)];
}

/** @param {State} state @param {HTMLElement} lanes @param {MouseEvent} event */
function tipFor(state, lanes, event) {
  const { view, facts } = state;
  const index = Number(lanes.getAttribute("data-index"));
  const model = facts.names[laneAt(state, lanes, event)];
  const { counts, mean, lo, hi } = posteriorOf(view, facts, model, index);
  const known = counts.some(Boolean) ? `\nposterior ${score(facts, mean)}, ${interval(facts, lo, hi)}` : "";
  showTip(
    `${plain(view.questions[index].id, 60)}\n${plain(model, 60)}: ${countsText(view, counts)}${known}`,
    event.clientX,
    event.clientY,
  );
}
