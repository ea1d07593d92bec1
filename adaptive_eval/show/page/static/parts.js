// Pieces of which several sections are made.

import { h } from "./dom.js";

/** Instead of a section that has nothing to show yet. */
export function nothing(text) {
  return [h("p", { class: "quiet" }, text)];
}

/** A part of the page that scrolls by itself, and that the keyboard reaches. */
export function region(label, className, ...content) {
  return h("div", { class: `scroll ${className}`.trim(), tabindex: 0, role: "region", "aria-label": label }, content);
}

/**
 * A table whose rows begin with a heading; the first `texts` columns are texts, the others numbers. A cell may be
 * nodes; `key` names a row, so that it stays itself when rows move.
 */
export function table({ caption, shown = false, head, rows, texts = 1, key = null }) {
  const side = (at) => (at < texts ? null : "digits");
  return h(
    "table",
    null,
    h("caption", { class: shown ? null : "unseen" }, caption),
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
  );
}

/** The numbers behind a chart, to be unfolded. */
export function data(title, content, key = null) {
  return h(
    "details",
    { class: "data", "data-key": key },
    h("summary", null, "Data"),
    region(title, "tall", table({ caption: title, shown: true, ...content })),
  );
}

/** Labels and values side by side; a value that is missing is left out. */
export function factList(rows) {
  const there = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    there.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value))),
  );
}
