// What is known of every question: posterior mean and interval of every model, one lane a model.

import { fitted, linear } from "./chart.js";
import { h, on, s } from "./dom.js";
import { interval, score } from "./facts.js";
import { nothing } from "./parts.js";
import { count, name, plain, plural } from "./text.js";
import { hideTip, showTip } from "./tip.js";

const PAGE = 200;
const HEIGHT = 24;
const PAD = 5;
const SIDE = 250;
const HEAD = 130;

export const posteriors = {
  id: "questions",
  title: "Questions",
  short: "Questions",
  render(state) {
    const { view, facts, ui } = state;
    if (!view.results) return nothing("There are no posteriors before the first look.");
    const rows = sorted(matching(rowsOf(view), ui.filter ?? ""), ui.sort, facts);
    const shown = rows.slice(0, ui.questions ?? PAGE);
    const lane = laneWidth(state);
    const lanes = facts.names.length;
    return [
      h(
        "p",
        null,
        "The posterior of each model's score on each question: the bar is the 95% interval, the tick the mean, ",
        `on a lane from ${score(facts, facts.low, 0)} to ${score(facts, facts.high, 0)}. `,
        "A question opens with everything about it.",
      ),
      h(
        "p",
        { class: "controls" },
        h(
          "label",
          null,
          "Filter ",
          h("input", {
            type: "search",
            "data-filter": "",
            placeholder: "id, text or cluster",
            autocomplete: "off",
            spellcheck: "false",
          }),
        ),
        h(
          "span",
          { class: "quiet", role: "status" },
          `${count(rows.length)} of ${plural(view.questions.length, "question")}`,
        ),
      ),
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
            facts.names.map((model) => h("col", { "data-key": model, style: { width: `${lane}px` } })),
          ),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              header("order", "Question", ui.sort),
              header("mean", "Mean", ui.sort, "digits"),
              header("spread", "Spread", ui.sort, "digits"),
              facts.names.map((model) => modelHeader(model, lane, ui.sort)),
            ),
          ),
          h(
            "tbody",
            null,
            shown.map((row) => questionRow(row, facts, lane, lanes)),
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
    on(root, "input", "[data-filter]", (input) => {
      state.ui.filter = input.value;
      state.refresh("questions");
    });
    on(root, "click", "[data-sort]", (button) => {
      const by = button.getAttribute("data-sort");
      const again = state.ui.sort?.by === by;
      state.ui.sort = by === "order" && again ? null : { by, down: again ? !state.ui.sort.down : by !== "order" };
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

function rowsOf(view) {
  return view.results.questions.map((row, index) => {
    const known = row.mean.filter((_, model) => row.trials[model] > 0);
    const means = known.length ? known : row.mean;
    return {
      row,
      index,
      question: view.questions[index],
      mean: means.reduce((sum, one) => sum + one, 0) / means.length,
      spread: Math.max(...means) - Math.min(...means),
    };
  });
}

function matching(rows, filter) {
  const wanted = filter.trim().toLowerCase();
  if (!wanted) return rows;
  return rows.filter(({ question }) =>
    [question.id, question.prompt, question.cluster ?? ""].some((text) => text.toLowerCase().includes(wanted)),
  );
}

function sorted(rows, sort, facts) {
  if (!sort) return rows;
  const model = facts.rankOf.get(sort.by.slice("model:".length));
  const value =
    { order: (one) => one.index, mean: (one) => one.mean, spread: (one) => one.spread }[sort.by] ??
    ((one) => one.row.mean[model] ?? 0);
  return [...rows].sort((one, other) => (sort.down ? -1 : 1) * (value(one) - value(other)) || one.index - other.index);
}

function laneWidth({ width, facts, printing }) {
  return Math.floor(Math.min(150, Math.max(printing ? 30 : 44, (width - SIDE) / Math.max(1, facts.names.length))));
}

function header(by, title, sort, className = null) {
  return h(
    "th",
    { scope: "col", class: className, "aria-sort": sortOf(by, sort) },
    h("button", { type: "button", "data-sort": by }, title, arrow(by, sort)),
  );
}

function modelHeader(model, lane, sort) {
  const by = `model:${model}`;
  return h(
    "th",
    {
      scope: "col",
      class: lane < 90 ? "upright" : "lane",
      "aria-sort": sortOf(by, sort),
      "data-tip": plain(model),
      "data-key": by,
    },
    h(
      "button",
      { type: "button", "data-sort": by },
      h("bdi", { class: "name" }, fitted(model, (lane < 90 ? HEAD : lane) - 14, 12.5, 600)),
      arrow(by, sort),
    ),
  );
}

function sortOf(by, sort) {
  return sort?.by === by ? (sort.down ? "descending" : "ascending") : null;
}

function arrow(by, sort) {
  return h("span", { class: "arrow", "aria-hidden": "true" }, sort?.by === by ? (sort.down ? " ↓" : " ↑") : "");
}

function questionRow({ row, index, mean, spread }, facts, lane, lanes) {
  return h(
    "tr",
    { "data-key": row.id },
    h(
      "th",
      { scope: "row" },
      h(
        "button",
        { type: "button", class: "link", "data-open": index, "data-tip": row.id.length > 16 ? plain(row.id) : null },
        name(row.id, 17),
      ),
    ),
    h("td", { class: "digits" }, score(facts, mean, 0)),
    h("td", { class: "digits" }, score(facts, spread, 0)),
    h("td", { colspan: lanes, class: "lanes", "data-index": index }, drawn(row, facts, lane, lanes)),
  );
}

/** All lanes of a question as three paths, which is what keeps thousands of intervals quick. */
function drawn(row, facts, lane, lanes) {
  const middle = HEIGHT / 2;
  let [tracks, intervals, means, blanks] = ["", "", "", ""];
  for (let model = 0; model < lanes; model += 1) {
    const x = linear(facts.low, facts.high, model * lane + PAD, (model + 1) * lane - PAD);
    if (row.trials[model] === 0) {
      blanks += `M${x(facts.low).toFixed(1)} ${middle}H${x(facts.high).toFixed(1)}`;
      continue;
    }
    tracks += `M${x(facts.low).toFixed(1)} ${middle}H${x(facts.high).toFixed(1)}`;
    intervals += `M${x(row.lo[model]).toFixed(1)} ${middle}H${x(row.hi[model]).toFixed(1)}`;
    means += `M${x(row.mean[model]).toFixed(1)} ${middle - 7}v14`;
  }
  return s(
    "svg",
    { width: lanes * lane, height: HEIGHT, "aria-hidden": "true" },
    s("path", { class: "blank", d: blanks }),
    s("path", { class: "track", d: tracks }),
    s("path", { class: "interval", d: intervals }),
    s("path", { class: "mean", d: means }),
  );
}

function laneAt(state, lanes, event) {
  const at = Math.floor((event.clientX - lanes.getBoundingClientRect().left) / laneWidth(state));
  return Math.min(Math.max(at, 0), state.facts.names.length - 1);
}

function modelAt(state, lanes, event) {
  return state.facts.names[laneAt(state, lanes, event)];
}

function tipFor(state, lanes, event) {
  const { view, facts } = state;
  const row = view.results.questions[Number(lanes.getAttribute("data-index"))];
  const model = laneAt(state, lanes, event);
  const known = row.trials[model]
    ? `${score(facts, row.mean[model])}, ${interval(facts, row.lo[model], row.hi[model])}`
    : "no trials";
  showTip(
    `${plain(row.id, 60)}\n${plain(facts.names[model], 60)}: ${known}\n${plural(row.trials[model], "trial")}`,
    event.clientX,
    event.clientY,
  );
}
