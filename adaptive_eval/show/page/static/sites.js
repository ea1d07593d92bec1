// The sites of a run on a cluster: where each is, what it serves and since when, what came from it, losses and moves.

import { h } from "./dom.js";
import { region, table } from "./parts.js";
import { count, listed, moment, name, number, plain, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { State } from "./parts.js" */

const TITLE = "Sites on the cluster";
const IN_TROUBLE = ["lost", "waiting", "loading", "serving", "ended"];

/** Nothing where the run had none. @param {State} shown @returns {Child} */
export function sites(shown) {
  const { view, pulse, live } = shown;
  if (!view.sites.length) return null;
  const ranked = view.sites.toSorted((one, other) => rank(one) - rank(other));
  const speeds = live ? new Map(pulse?.sites.map((one) => [keyOf(one), one.per_second])) : new Map();
  const head = [
    "Model",
    "Site",
    "Host",
    "Node",
    "State",
    "Since",
    "GPUs",
    "Answers",
    "a second",
    ...(live ? ["now"] : []),
    "Lost",
    "Moved",
  ];
  const rows = ranked.map((one) => [
    name(one.row.model, 60),
    plain(one.row.site, 60),
    plain(one.row.host ?? "–", 60),
    h("code", null, plain((one.row.node ?? "–").slice(0, 8), 8)),
    state(one.row),
    moment(one.row.since),
    gpus(one.row),
    count(one.answers),
    number(one.per_second, 1),
    ...(live ? [number(speeds.get(keyOf(one.row)) ?? 0, 1)] : []),
    count(one.row.losses),
    count(one.row.moves),
  ]);
  const key = (/** @type {number} */ at) => keyOf(ranked[at].row);
  return [
    h("h3", null, TITLE),
    h("p", { class: "note" }, summary(view.sites)),
    region(TITLE, "tall", table({ caption: TITLE, head, rows, texts: 6, key })),
  ];
}

/** @param {SiteView} one */
function rank(one) {
  return IN_TROUBLE.indexOf(one.row.state);
}

/** @param {SiteRow | SiteSpeed} one */
function keyOf(one) {
  return `${one.model}\n${one.site}`;
}

/** What it does, and what went wrong with it. @param {SiteRow} row @returns {Child} */
function state(row) {
  const shown = h("span", { class: `site-${plain(row.state, 20)}` }, plain(row.state, 20));
  return row.why === null || row.state === "serving" || row.state === "ended"
    ? shown
    : [shown, h("div", { class: "wrap note" }, plain(row.why, 300))];
}

/** How many GPUs, and which of the machine's. @param {SiteRow} row */
function gpus(row) {
  const many = number(row.gpus, Number.isInteger(row.gpus) ? 0 : 2);
  return row.devices === null ? many : `${many} (${plain(row.devices, 40)})`;
}

/** @param {SiteView[]} views */
function summary(views) {
  const sum = (/** @type {(row: SiteRow) => number} */ of) => views.reduce((total, one) => total + of(one.row), 0);
  const states = IN_TROUBLE.map((state) => [sum((row) => (row.state === state ? 1 : 0)), state]).filter(
    ([many]) => many,
  );
  const told = [
    ...states.map(([many, state]) => `${many} ${state}`),
    `${plural(
      sum((row) => row.losses),
      "loss",
      "losses",
    )}`,
    `${plural(
      sum((row) => row.moves),
      "move",
    )} to another node`,
  ];
  return `${plural(views.length, "site")}: ${listed(told)}.`;
}
