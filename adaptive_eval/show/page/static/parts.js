// Pieces of which several sections are made.

import { h } from "./dom.js";
import { count, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Facts } from "./facts.js" */

/** @typedef {{by: string, down: boolean}} Sort */

/**
 * What the reader has chosen.
 * @typedef {object} Ui
 * @property {string} [filter]
 * @property {string} [order] of the questions
 * @property {number} [questions]
 * @property {string} [pair]
 * @property {boolean} [allPairs]
 * @property {[string, string]} [cell]
 * @property {[number, number]} [heat]
 * @property {[question: number, model: string]} [lane]
 */

/**
 * What a page shows, and how its parts reach each other.
 * @typedef {object} State
 * @property {RunView} view
 * @property {Facts} facts
 * @property {Ui} ui
 * @property {RunProgress | null} pulse
 * @property {boolean} live
 * @property {boolean} waiting
 * @property {boolean} printing
 * @property {number} width
 * @property {(id: string) => void} refresh
 * @property {(question: number, model?: string) => void} openQuestion
 */

/**
 * One section of the page: `render` gives its content, `painted` and `wire` get the element that holds it. What is not
 * always `shown` is folded away.
 * @typedef {object} Section
 * @property {string} id
 * @property {string} title
 * @property {boolean} [shown]
 * @property {(state: State) => boolean} [isThere] whether it has anything to say
 * @property {(state: State) => Child[]} render
 * @property {(root: HTMLElement, state: State) => void} [painted]
 * @property {(root: HTMLElement, state: State) => void} [wire]
 */

/**
 * @typedef {object} Table
 * @property {string} caption
 * @property {boolean} [shown]
 * @property {Child[]} head
 * @property {Child[][]} rows
 * @property {number} [texts]
 * @property {((row: number) => string) | null} [key]
 */

/**
 * A part of the page that scrolls by itself, and that the keyboard reaches.
 * @param {string} label @param {string} className @param {...Child} content
 */
export function region(label, className, ...content) {
  return h("div", { class: `scroll ${className}`.trim(), tabindex: 0, role: "region", "aria-label": label }, content);
}

/**
 * A table whose rows begin with a heading; the first `texts` columns are texts, the others numbers. A cell may be
 * nodes; `key` names a row, so that it stays itself when rows move.
 * @param {Table} given
 */
export function table({ caption, shown = false, head, rows, texts = 1, key = null }) {
  const side = (/** @type {number} */ at) => (at < texts ? null : "digits");
  return h("table", null, [
    h("caption", { class: shown ? null : "unseen" }, h("span", { class: "says" }, caption)),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        head.map((title, at) => h("th", { scope: "col", class: side(at) }, title)),
      ),
    ),
    h(
      "tbody",
      null,
      rows.map((row, place) =>
        h(
          "tr",
          { "data-key": key ? key(place) : null },
          row.map((cell, at) => (at ? h("td", { class: side(at) }, cell) : h("th", { scope: "row" }, cell))),
        ),
      ),
    ),
  ]);
}

/** The numbers that the reader has unfolded. @type {Set<string>} */
const unfolded = new Set();

/**
 * The numbers behind a chart, to be unfolded: only then are they drawn.
 * @param {string} title @param {() => Omit<Table, "caption" | "shown">} content @param {string | null} [key]
 */
export function data(title, content, key = null) {
  const open = unfolded.has(key ?? title);
  return h("details", { class: "data", "data-key": key, "data-fold": key ?? title, open }, [
    h("summary", null, "Data"),
    open ? region(title, "tall", table({ caption: title, shown: true, ...content() })) : null,
  ]);
}

/**
 * Keeps what the reader unfolds, and has the section drawn again that it is in.
 * @param {HTMLElement} root @param {() => void} draw
 */
export function followFolds(root, draw) {
  root.addEventListener(
    "toggle",
    (event) => {
      const { target } = event;
      if (!(target instanceof HTMLDetailsElement) || target.dataset.fold === undefined) return;
      const { fold } = target.dataset;
      if (unfolded.has(fold) === target.open) return;
      if (target.open) unfolded.add(fold);
      else unfolded.delete(fold);
      draw();
    },
    { capture: true }, // it does not rise from where it happens
  );
}

/** Labels and values side by side; a value that is missing is left out. @param {[Child, Child][]} rows */
export function factList(rows) {
  const there = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    there.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value))),
  );
}

/**
 * A field that filters the rows of a table, and how many it leaves; what is written in it is heard by `[data-filter]`.
 * @param {{placeholder: string, shown: number, all: number, unit: string, more?: Child}} given
 */
export function filterField({ placeholder, shown, all, unit, more }) {
  const input = h("input", {
    type: "search",
    "data-filter": "",
    placeholder,
    autocomplete: "off",
    spellcheck: "false",
  });
  return h("p", { class: "controls" }, [
    h("label", null, "Filter ", input),
    more,
    h("span", { class: "quiet", role: "status" }, `${count(shown)} of ${plural(all, unit)}`),
  ]);
}

/**
 * The rows one of whose texts has what is written in the filter field.
 * @template T
 * @param {T[]} rows @param {string} written @param {(row: T) => string[]} texts
 */
export function filtered(rows, written, texts) {
  const wanted = written.trim().toLowerCase();
  return rows.filter((row) => texts(row).some((text) => text.toLowerCase().includes(wanted)));
}

/**
 * The heading of a column by which the rows can be sorted; a click on it is heard by `[data-sort]`.
 * @param {string} by @param {Sort | null | undefined} sort @param {Child} title @param {Record<string, any>} [more]
 */
export function sortHeading(by, sort, title, more = {}) {
  const here = sort?.by === by ? sort : null;
  return h(
    "th",
    { scope: "col", "aria-sort": here && (here.down ? "descending" : "ascending"), ...more },
    h("button", { type: "button", "data-sort": by }, [
      title,
      here ? h("span", { class: "arrow", "aria-hidden": "true" }, here.down ? " ↓" : " ↑") : null,
    ]),
  );
}
