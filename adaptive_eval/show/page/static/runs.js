// Several runs of one folder, side by side: what runs now first, then the newest.

import { signIcon } from "./chart.js";
import { h, on, update } from "./dom.js";
import { VERDICTS, verdictWord } from "./facts.js";
import { filterField, filtered, sortHeading } from "./parts.js";
import { followEdges, markEdges } from "./scrolling.js";
import { readRuns } from "./sent.js";
import { glossaryList, term } from "./terms.js";
import { count, messageOf, moment, name, percent, plain } from "./text.js";
/** @import { Sort } from "./parts.js" */

/** @typedef {{runs: RunBrief[], problem: string | null, filter: string, sort: Sort | null}} Listed */
/** @typedef {{by: string, title: string, digits?: boolean, value: (run: RunBrief) => string | number}} Column */

const PAUSE = 5000;
const LIVE = "running";

/** @type {Column[]} */
const COLUMNS = [
  { by: "name", title: "Run", value: (run) => run.name },
  { by: "status", title: "Status", value: (run) => statusText(run) },
  { by: "best", title: "First", value: (run) => run.best ?? "" },
  { by: "models", title: "Models", digits: true, value: (run) => run.models },
  { by: "questions", title: "Questions", digits: true, value: (run) => run.questions },
  { by: "trials", title: "Trials", digits: true, value: (run) => run.trials },
  { by: "share", title: "of cap", digits: true, value: (run) => (run.cap ? run.trials / run.cap : 0) },
  { by: "resolved", title: "Comparisons", value: (run) => run.resolved + run.tied },
  { by: "created", title: "Begun, UTC", value: (run) => run.created },
  { by: "updated", title: "Updated, UTC", value: (run) => run.updated },
];
/** @type {Record<string, [string, string]>} */
const GATES = {
  PASS: ["✓", "finished"],
  FAIL: ["✗", "failed"],
  UNDECIDED: ["?", "stopped"],
  open: ["…", "running"],
};
const TEXTS = new Set(["name", "status", "best"]);

/** Fills the page with a table of runs, and keeps it up to date. @param {HTMLElement} page @param {string} root */
export async function showRuns(page, root) {
  const body = h("div", { class: "body" });
  /** @type {Listed} */
  const state = { runs: [], problem: null, filter: "", sort: null };
  page.append(
    h("header", { class: "top" }, h("p", { class: "brand" }, "adaptive-eval"), h("h1", null, "Runs")),
    h("main", null, h("section", { class: "sheet", "aria-label": "Runs" }, body)),
    h("footer", { class: "quiet" }, h("details", null, h("summary", null, "What the words mean"), glossaryList())),
  );
  const draw = () => {
    update(body, h("div", null, content(state, root)));
    markEdges(body);
  };
  on(body, "input", "[data-filter]", (/** @type {HTMLInputElement} */ input) => {
    state.filter = input.value;
    draw();
  });
  on(body, "click", "[data-sort]", (button) => {
    const { sort: by = "" } = button.dataset;
    const first = !TEXTS.has(by); // of numbers and dates the largest first
    const before = state.sort?.by === by ? state.sort : null;
    state.sort = before && before.down !== first ? null : { by, down: before ? !before.down : first };
    draw();
  });
  followEdges();
  new ResizeObserver(() => markEdges(body)).observe(body);
  const refresh = async () => {
    try {
      if (!document.hidden) Object.assign(state, { runs: await readRuns(root), problem: null });
    } catch (error) {
      state.problem = `The list cannot be read now: ${plain(messageOf(error))}`;
    }
    draw();
    setTimeout(refresh, PAUSE);
  };
  await refresh();
}

/** @param {Listed} state @param {string} root */
function content(state, root) {
  const rows = sorted(filtered(state.runs, state.filter, textsOf), state.sort);
  return [
    state.problem ? h("p", { class: "problem", role: "status" }, state.problem) : null,
    state.runs.length
      ? filterField({
          placeholder: "name, status or model",
          shown: rows.length,
          all: state.runs.length,
          unit: "run",
        })
      : null,
    state.runs.length ? table(rows, state.sort, root) : null,
    state.runs.length || state.problem ? null : h("p", { class: "quiet" }, "There is no run in this folder yet."),
  ];
}

/** Where the filter looks. @param {RunBrief} run */
function textsOf(run) {
  return [run.name, statusText(run), run.best ?? ""];
}

/**
 * By a column, or what runs now before the rest and the newest first.
 * @param {RunBrief[]} runs @param {Sort | null} sort
 */
function sorted(runs, sort) {
  const live = (/** @type {RunBrief} */ run) => (run.status === LIVE ? 1 : 0);
  const newest = (/** @type {RunBrief} */ one, /** @type {RunBrief} */ other) =>
    live(other) - live(one) || other.updated - one.updated;
  const column = COLUMNS.find(({ by }) => by === sort?.by);
  if (!sort || !column) return [...runs].sort(newest);
  return [...runs].sort((one, other) => {
    const [first, second] = [column.value(one), column.value(other)];
    const order = first < second ? -1 : first > second ? 1 : 0;
    return (sort.down ? -order : order) || newest(one, other);
  });
}

/** The status as it is written, for whoever filters by it. @param {RunBrief} run */
function statusText(run) {
  const gate = run.gate ? ` gate ${run.gate}` : "";
  return `${run.status}${gate} ${(run.reason ?? "").replaceAll("_", " ")}`;
}

/** @param {RunBrief[]} runs @param {Sort | null} sort @param {string} root */
function table(runs, sort, root) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs", "data-key": "table" },
    h("table", { class: "runs" }, [
      h("caption", { class: "unseen" }, "Runs in this folder"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          COLUMNS.map(({ by, title, digits }) => sortHeading(by, sort, title, { class: digits ? "digits" : null })),
        ),
      ),
      h(
        "tbody",
        null,
        runs.map((run) => row(run, root)),
      ),
    ]),
  );
}

/** @param {RunBrief} run @param {string} root */
function row(run, root) {
  const digits = (/** @type {string} */ label, /** @type {string} */ text) =>
    h("td", { class: "digits", "data-label": label }, text);
  return h("tr", { "data-key": run.name }, [
    h("th", { scope: "row" }, h("a", { href: `${root}run/${encodeURIComponent(run.name)}/` }, name(run.name, 60))),
    h("td", null, status(run)),
    h("td", { "data-label": "First" }, run.best === null ? "–" : name(run.best, 40)),
    digits("Models", count(run.models)),
    digits("Questions", count(run.questions)),
    digits("Trials", count(run.trials)),
    digits("of cap", run.cap ? percent(run.trials / run.cap) : "–"),
    h("td", null, comparisons(run)),
    h("td", { "data-label": "Begun, UTC" }, moment(run.created).replace(" UTC", "")),
    h("td", { "data-label": "Updated, UTC" }, moment(run.updated).replace(" UTC", "")),
  ]);
}

/** @param {string} outcome */
function gateBadge(outcome) {
  const [sign, state] = GATES[outcome];
  return h("span", { class: `status ${state}` }, `${sign} `, term("gate", "gate"), ` ${outcome}`);
}

/** @param {RunBrief} run */
function status(run) {
  const reason = run.reason && run.status === "finished" ? plain(run.reason.replaceAll("_", " ")) : null;
  return [
    h("span", { class: `status ${run.status}` }, plain(run.status), reason === null ? null : h("small", null, reason)),
    // an error is a sentence, in which nothing may be replaced
    run.reason && run.status === "stopped" ? h("small", { class: "why" }, plain(run.reason, 160)) : null,
  ];
}

/** @param {RunBrief} run */
function comparisons(run) {
  if (run.gate) return gateBadge(run.gate);
  return h(
    "span",
    { class: "counts" },
    VERDICTS.filter((verdict) => run[verdict]).map((verdict) =>
      h("span", { class: `badge v-${verdict}` }, signIcon(verdict), `${count(run[verdict])} ${verdictWord(verdict)}`),
    ),
  );
}
