// The sites of a run on a cluster: the place and state of each, its losses and moves.

import { h } from "./dom.js";
import { note, sumOf, titledTable } from "./parts.js";
import { count, listed, moment, name, number, plain, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { State } from "./parts.js" */

const STATES = ["lost", "waiting", "loading", "serving", "ended"]; // what needs attention first

/** @param {State} state @returns {Child} */
export function sites({ view }) {
  if (!view.sites.length) return null;
  const rank = (/** @type {SiteRow} */ row) => STATES.indexOf(row.state);
  const content = titledTable({
    className: "tall",
    caption: "Sites on the cluster",
    texts: 6,
    key: (row) => `${row.model}\n${row.site}`,
    rows: view.sites.toSorted((a, b) => rank(a) - rank(b)),
    columns: [
      ["Model", (row) => name(row.model, 60)],
      ["Site", (row) => plain(row.site, 60)],
      ["Host", (row) => plain(row.host ?? "–", 60)],
      ["Node", (row) => h("code", null, plain((row.node ?? "–").slice(0, 8), 8))],
      ["State", (row) => stateOf(row)],
      ["Since", (row) => moment(row.since)],
      ["GPUs", (row) => gpus(row)],
      ["Lost", (row) => count(row.losses)],
      ["Moved", (row) => count(row.moves)],
    ],
  });
  return [content, note(summary(view.sites))];
}

/** The state of a site, and what went wrong with it. @param {SiteRow} row @returns {Child} */
function stateOf({ state, why }) {
  const shown = h("span", { class: `site-${plain(state, 20)}` }, plain(state, 20));
  const isWell = why === null || state === "serving" || state === "ended";
  return isWell ? shown : [shown, h("div", { class: "wrap note" }, plain(why, 300))];
}

/** How many GPUs, and which of the machine's. @param {SiteRow} row */
function gpus({ gpus, devices }) {
  const amount = number(gpus, Number.isInteger(gpus) ? 0 : 2);
  return devices === null ? amount : `${amount} (${plain(devices, 40)})`;
}

/** @param {SiteRow[]} rows */
function summary(rows) {
  const states = STATES.map((state) => ({ state, sites: rows.filter((row) => row.state === state).length }));
  const losses = sumOf(rows, (row) => row.losses);
  const moves = sumOf(rows, (row) => row.moves);
  const parts = [
    ...states.filter(({ sites }) => sites).map(({ state, sites }) => `${sites} ${state}`),
    plural(losses, "loss", "losses"),
    `${plural(moves, "move")} to another node`,
  ];
  return `${plural(rows.length, "site")}: ${listed(parts)}.`;
}
