// The runs of a folder side by side: running ones first, then the newest.

import { badge } from "./chart.js";
import { h, on, update } from "./dom.js";
import { VERDICTS, verdictWord } from "./facts.js";
import { filterField, filtered, table } from "./parts.js";
import { followEdges, markEdges } from "./scrolling.js";
import { readRuns } from "./sent.js";
import { glossaryList, term } from "./terms.js";
import { count, messageOf, moment, name, percent, plain } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Column as TableColumn } from "./parts.js" */

/** @typedef {{runs: RunBrief[], problem: string | null, filter: string}} List */
/** @typedef {[title: string, kind: "digits" | "other", cell: (run: RunBrief, root: string) => Child]} Column */

const PAUSE_MS = 5000;

/** @type {Column[]} */
const COLUMNS = [
  ["Run", "other", link],
  ["Status", "other", status],
  ["First", "other", (run) => name(run.best ?? "–", 40)],
  ["Models", "digits", (run) => count(run.models)],
  ["Questions", "digits", (run) => count(run.questions)],
  ["Trials", "digits", (run) => count(run.trials)],
  ["of limit", "digits", ({ trials, cap }) => (cap ? percent(trials / cap) : "–")],
  ["Comparisons", "other", comparisons],
  ["Begun, UTC", "other", (run) => time(run.created)],
  ["Updated, UTC", "other", (run) => time(run.updated)],
];
/** @type {Record<string, [sign: string, status: string]>} */
const GATES = { PASS: ["✓", "finished"], FAIL: ["✗", "failed"], UNDECIDED: ["?", "stopped"], open: ["…", "running"] };

/** Fills the page with a table of runs, and keeps it up to date. @param {HTMLElement} page @param {string} root */
export async function showRuns(page, root) {
  const body = h("div", { class: "body" });
  /** @type {List} */
  const list = { runs: [], problem: null, filter: "" };
  page.append(
    h("header", { class: "top" }, h("p", { class: "brand" }, "adaptive-eval"), h("h1", null, "Runs")),
    h("main", null, h("section", { class: "sheet", "aria-label": "Runs" }, body)),
    h("footer", { class: "quiet" }, h("details", null, h("summary", null, "What the words mean"), glossaryList())),
  );
  const draw = () => {
    update(body, h("div", null, content(list, root)));
    markEdges(body);
  };
  on(body, "input", "[data-filter]", (/** @type {HTMLInputElement} */ input) => {
    list.filter = input.value;
    draw();
  });
  followEdges();
  new ResizeObserver(() => markEdges(body)).observe(body);
  const refresh = async () => {
    try {
      if (!document.hidden) Object.assign(list, { runs: await readRuns(root), problem: null });
    } catch (error) {
      list.problem = `The list cannot be read now: ${plain(messageOf(error))}`;
    }
    draw();
    setTimeout(refresh, PAUSE_MS);
  };
  await refresh();
}

/** @param {List} list @param {string} root */
function content({ runs, problem, filter }, root) {
  const isLive = (/** @type {RunBrief} */ run) => Number(run.status === "running");
  const rows = filtered(runs, filter, (run) => [run.name, statusText(run), run.best ?? ""]).toSorted(
    (a, b) => isLive(b) - isLive(a) || b.updated - a.updated,
  );
  const warning = problem ? h("p", { class: "problem", role: "status" }, problem) : null;
  if (!runs.length) return warning ?? h("p", { class: "quiet" }, "There is no run in this folder yet.");
  const field = { placeholder: "name, status or model", shown: rows.length, all: runs.length, unit: "run" };
  return [warning, filterField(field), runTable(rows, root)];
}

/** @param {RunBrief[]} rows @param {string} root */
function runTable(rows, root) {
  const columns = COLUMNS.map(([title, kind, cell]) => {
    const side = { class: kind === "digits" ? "digits" : null };
    return /** @type {TableColumn<RunBrief>} */ ([
      title,
      (run) => cell(run, root),
      side,
      { ...side, "data-label": title },
    ]);
  });
  return h("div", { class: "runs", "data-key": "table" }, [
    table({ caption: "Runs in this folder", columns, rows, key: (run) => run.name }),
  ]);
}

/** @param {RunBrief} run @param {string} root */
function link(run, root) {
  return h("a", { href: `${root}run/${encodeURIComponent(run.name)}/` }, name(run.name, 60));
}

/** @param {string | number} when */
function time(when) {
  return moment(when).replace(" UTC", "");
}

/** The status as it is written, for whoever filters by it. @param {RunBrief} run */
function statusText({ status, gate, reason }) {
  return `${status}${gate ? ` gate ${gate}` : ""} ${(reason ?? "").replaceAll("_", " ")}`;
}

/** @param {RunBrief} run */
function status({ status, reason }) {
  const remark = reason && status === "finished" ? h("small", null, plain(reason.replaceAll("_", " "))) : null;
  return [
    h("span", { class: `status ${status}` }, plain(status), remark),
    // an error is a sentence, in which nothing may be replaced
    reason && status === "stopped" ? h("small", { class: "why" }, plain(reason, 160)) : null,
  ];
}

/** @param {RunBrief} run */
function comparisons(run) {
  if (run.gate) {
    const [sign, status] = GATES[run.gate];
    return h("span", { class: `status ${status}` }, `${sign} `, term("gate", "gate"), ` ${run.gate}`);
  }
  const verdicts = VERDICTS.filter((verdict) => run[verdict]);
  const badges = verdicts.map((verdict) => badge(verdict, `${count(run[verdict])} ${verdictWord(verdict)}`));
  return h("span", { class: "counts" }, badges);
}
