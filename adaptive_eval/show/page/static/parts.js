// Pieces of which several sections are made.

import { h } from "./dom.js";
import { term } from "./terms.js";
import { count, name, plain, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */
/** @import { Place } from "./grid.js" */

/**
 * Choices of the reader: what filters and orders the questions and how many are shown, and what is chosen in each section.
 * @typedef {{filter?: string, order?: string, questions?: number, pair?: string, allPairs?: boolean,
 *   cell?: [string, string], heat?: Place, lane?: [question: number, model: string]}} Ui
 */

/**
 * What a page shows, and how its parts reach each other.
 * @typedef {{view: PageView, facts: Facts, ui: Ui, pulse: RunProgress | null, live: boolean, waiting: boolean,
 *   printing: boolean, width: number, refresh: (id: string) => void,
 *   openQuestion: (question: number, model?: string) => void}} State
 */

/**
 * One section of the page: `render` gives its content, `painted` and `wire` get the element that holds it. It is folded
 * away unless it is always `shown`, and left out where `isThere` says that it has nothing to say.
 * @typedef {{id: string, title: string, shown?: boolean, isThere?: (state: State) => boolean,
 *   render: (state: State) => Child[], painted?: (root: HTMLElement, state: State) => void,
 *   wire?: (root: HTMLElement, state: State) => void}} Section
 */

/**
 * A column of a table: its heading, and what it shows of a row.
 * @template R
 * @typedef {[title: Child, cell: (row: R) => Child]} Column
 */

/**
 * A table, given by its columns and rows. The first `texts` columns are texts, the others numbers; a column may be left
 * out. A caption that is not `shown` is for who does not see the table. `key` names a row, so that it stays itself when
 * rows move.
 * @template R
 * @typedef {{caption: string, columns: (Column<R> | false | null)[], rows: readonly R[], texts?: number,
 *   shown?: boolean, key?: (row: R) => string, className?: string}} TableOf
 */

/** A column built from data. @template R @param {Child} title @param {(row: R) => Child} cell @returns {Column<R>} */
export function column(title, cell) {
  return [title, cell];
}

/** A remark. @param {...Child} content */
export function note(...content) {
  return h("p", { class: "note" }, content);
}

/**
 * A part of the page that scrolls by itself, and that the keyboard reaches.
 * @param {string} label @param {string} className @param {...Child} content
 */
export function region(label, className, ...content) {
  return h("div", { class: `scroll ${className}`.trim(), tabindex: 0, role: "region", "aria-label": label }, content);
}

/** A table in a region that scrolls; nothing if it has no rows. @template R @param {TableOf<R>} given */
export function table({ caption, columns, rows, texts = 1, shown = false, key, className = "" }) {
  if (!rows.length) return null;
  const present = columns.filter((column) => column !== false && column !== null);
  const side = (/** @type {number} */ index) => (index < texts ? null : "digits");
  const heads = present.map(([title], index) => h("th", { scope: "col", class: side(index) }, title));
  const body = rows.map((row) => {
    const cells = present.map(([, cell], index) =>
      index ? h("td", { class: side(index) }, cell(row)) : h("th", { scope: "row" }, cell(row)),
    );
    return h("tr", { "data-key": key ? key(row) : null }, cells);
  });
  const content = h("table", null, [
    h("caption", { class: shown ? null : "unseen" }, h("span", { class: "says" }, caption)),
    h("thead", null, h("tr", null, heads)),
    h("tbody", null, body),
  ]);
  return region(caption, className, content);
}

/** Words of the glossary, by the headings of tables that are sent. @type {Record<string, TermKey>} */
const TERMS = {
  alike: "letters",
  "avg@N": "score",
  "Bayes@N mu": "bayes",
  "σ here": "sigma",
  "σ like these": "sigma",
  R0: "prior_trials",
  trials: "trials",
  "server time": "server_time",
  "z now": "z",
  "boundary now": "boundary",
  "trials per question needed": "trials_needed",
  "ties within": "delta",
};

/** The paragraphs and tables that were sent for a section. @param {PageView} view @param {string} section */
export function blocks(view, section) {
  return (view.blocks[section] ?? []).map((block) =>
    typeof block === "string" ? note(plain(block, 2000)) : sent(block),
  );
}

/** A table as it was sent, under its title; nothing if it has no rows. @param {Table} sent */
function sent({ title, head, rows, texts }) {
  if (!rows.length) return null;
  const heading = (/** @type {string} */ word) => (word in TERMS ? term(TERMS[word], word) : plain(word));
  const cell = (/** @type {string[]} */ row, /** @type {number} */ at) =>
    at < texts ? name(row[at], 500) : plain(row[at] || "–", 500);
  const columns = head.map((word, at) => column(heading(word), (/** @type {string[]} */ row) => cell(row, at)));
  const key = (/** @type {string[]} */ row) => row.slice(0, texts).join("\n");
  return [h("h3", null, title), table({ caption: title, className: "tall", rows, texts, columns, key })];
}

/** The numbers that the reader has unfolded. @type {Set<string>} */
const unfolded = new Set();

/**
 * The numbers behind a chart, to be unfolded: only then are they drawn.
 * @template R
 * @param {string} caption @param {() => Omit<TableOf<R>, "caption" | "shown">} content @param {string} [key]
 */
export function data(caption, content, key) {
  const fold = key ?? caption;
  const open = unfolded.has(fold);
  return h("details", { class: "data", "data-key": key, "data-fold": fold, open }, [
    h("summary", null, "Data"),
    open ? table({ caption, shown: true, className: "tall", ...content() }) : null,
  ]);
}

/** Keeps what the reader unfolds, and redraws its section. @param {HTMLElement} root @param {() => void} draw */
export function followFolds(root, draw) {
  const follow = (/** @type {Event} */ { target }) => {
    if (!(target instanceof HTMLDetailsElement) || target.dataset.fold === undefined) return;
    const { fold } = target.dataset;
    if (unfolded.has(fold) === target.open) return;
    if (target.open) unfolded.add(fold);
    else unfolded.delete(fold);
    draw();
  };
  root.addEventListener("toggle", follow, { capture: true }); // a toggle does not bubble
}

/** Labels and values side by side; a value that is missing is left out. @param {[Child, Child][]} rows */
export function factList(rows) {
  const present = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  const entries = present.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value)));
  return h("dl", { class: "facts" }, entries);
}

/**
 * A field that filters rows, and how many it leaves.
 * @param {{placeholder: string, shown: number, all: number, unit: string}} given @param {...Child} more
 */
export function filterField({ placeholder, shown, all, unit }, ...more) {
  const field = { type: "search", "data-filter": "", placeholder, autocomplete: "off", spellcheck: "false" };
  return h("p", { class: "controls" }, [
    h("label", null, "Filter ", h("input", field)),
    more,
    h("span", { class: "quiet", role: "status" }, `${count(shown)} of ${plural(all, unit)}`),
  ]);
}

/**
 * The rows one of whose texts has what the reader has typed.
 * @template R @param {R[]} rows @param {string} typed @param {(row: R) => string[]} texts
 */
export function filtered(rows, typed, texts) {
  const wanted = typed.trim().toLowerCase();
  return rows.filter((row) => texts(row).some((text) => text.toLowerCase().includes(wanted)));
}

/** The sum over rows. @template R @param {readonly R[]} rows @param {(row: R) => number} value */
export function sumOf(rows, value) {
  return rows.reduce((sum, row) => sum + value(row), 0);
}

/** Marks the parts of `root` that have more to their left or right. @param {Element} root */
export function markEdges(root) {
  root.querySelectorAll(".scroll").forEach(mark);
}

/** Keeps the marks true while somebody scrolls. */
export function followEdges() {
  const follow = (/** @type {Event} */ { target }) =>
    target instanceof Element && target.matches(".scroll") && mark(target);
  document.addEventListener("scroll", follow, { capture: true, passive: true });
}

/** @param {Element} box */
function mark(box) {
  const room = box.scrollWidth - box.clientWidth;
  const more = [box.scrollLeft > 1 && "left", box.scrollLeft < room - 1 && "right"].filter(Boolean).join(" ");
  if (more !== (box.getAttribute("data-more") ?? "")) box.setAttribute("data-more", more);
}
