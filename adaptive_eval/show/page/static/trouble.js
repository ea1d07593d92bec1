// What went wrong: answers worth a note, requests that were repeated, and everything that happened to the run.

import { transcriptEnd } from "./dialog.js";
import { h } from "./dom.js";
import { region, table } from "./parts.js";
import { INSPECT_LOGS } from "./sent.js";
import { sites } from "./sites.js";
import { count, duration, moment, name, number, percent, plain, plural } from "./text.js";
/** @import { Child } from "./dom.js" */
/** @import { Section, State } from "./parts.js" */

/** @type {Record<string, string>} */
const EVENTS = {
  started: "started",
  resumed: "resumed",
  configured: "settings changed",
  looks_retaken: "looks repeated",
  imported: "trials imported",
  prior: "earlier outcomes taken (R0)",
  recorded: "recorded models taken",
  set_aside: "model set aside",
  ungraded: "a trial without a grade",
  replica_lost: "replica lost",
  replica_back: "replica back",
  retrying: "nothing but failures",
  noticed: "noticed",
  servers_awaited: "no server to ask",
  waiting: "waiting for a place",
  launching: "server starts",
  launched: "server ready",
  server_died: "server died",
  released: "server stopped",
  server_rests: "server stopped for now",
  settled: "model settled",
  answers_lost: "answers lost",
  alarm: "alarm",
  site_awaited: "site waits for a place",
  site_placed: "site placed",
  site_lost: "site lost",
  batch_planned: "batch planned",
  batch_taken: "batch handed in",
  batch_cancelled: "batch cancelled",
  batch_ended: "batch over",
  regrading: "grading again",
  regraded: "graded again",
  grader_chosen: "grader chosen",
  thresholds: "thresholds frozen",
  baseline: "verifier asked first",
  verdicts_asked: "verdicts asked for",
  verdicts_in_vain: "verdicts in vain",
  stopped: "stopped",
  finished: "finished",
};
const SHOWN = 300;

/** @type {Section} */
export const trouble = {
  id: "traffic",
  title: "Answers, requests, events",
  render(state) {
    return [sites(state), ...[answers, traffic, batches, turns, events].map((part) => part(state))];
  },
};

/** @param {State} state */
function answers(state) {
  const { view } = state;
  const rows = view.results?.models ?? [];
  const signals = [...new Set(rows.flatMap((row) => Object.keys(row.signals)))].sort();
  /** @type {[string, (row: ModelRow) => number][]} */
  const all = [
    ...signals.map(counted),
    ["no grade", (row) => row.ungraded],
    ["repeated word for word", (row) => row.repeats],
  ];
  const columns = all.filter(([, of]) => rows.some((row) => of(row)));
  if (!rows.length) return null;
  if (!columns.length)
    return h("p", { class: "note" }, "No answer was truncated, empty, refused, repeated or left ungraded.");
  return titled(
    "Answers worth a note",
    ["Model", "Answers", ...columns.map(([title]) => title)],
    rows
      .filter((row) => columns.some(([, of]) => of(row)))
      .map((row) => [
        name(row.name, 60),
        count(row.stored_trials),
        ...columns.map(([, of]) =>
          of(row) ? `${count(of(row))} (${smallShare(of(row) / Math.max(1, row.stored_trials))})` : "0",
        ),
      ]),
  );
}

/** The column of a signal. @param {string} signal @returns {[string, (row: ModelRow) => number]} */
function counted(signal) {
  return [plain(signal.replaceAll("_", " ")), (row) => row.signals[signal] ?? 0];
}

/** @param {number} share */
function smallShare(share) {
  return share < 0.001 ? "< 0.1%" : percent(share, 1);
}

/** @param {State} state */
function traffic(state) {
  const { view } = state;
  if (!view.traffic.length) return null;
  const logs = view.traffic.some((one) => one.replica.startsWith(`${INSPECT_LOGS}/`));
  const first = view.traffic.some((one) => one.ttft !== null);
  const told = logs
    ? h("p", { class: "note" }, [
        "Inspect has the transcripts, in a log of each model for each start of the run: ",
        h("code", null, `inspect view --log-dir ${INSPECT_LOGS}`),
        " in the run’s directory shows them.",
      ])
    : null;
  const rows = titled(
    logs ? "Answers by model and log of Inspect" : "Answers by model and server",
    [
      "Model",
      logs ? "Log of Inspect" : "Server",
      "Answers",
      "Retries",
      "per answer",
      "Prompt tokens",
      "Completion tokens",
      "Mean latency",
      ...(first ? ["to first token"] : []),
    ],
    view.traffic.map((one) => [
      name(one.model, 60),
      logLink(one.replica) ?? name(one.replica, 60),
      count(one.trials),
      count(one.retries),
      number(one.retries / Math.max(1, one.trials)),
      count(one.prompt_tokens),
      count(one.completion_tokens),
      seconds(one.latency),
      ...(first ? [seconds(one.ttft)] : []),
    ]),
    2,
  );
  return [told, rows, view.transcripts.map((end) => transcriptEnd(end))];
}

/** Where a report in the run's directory finds a log; null elsewhere. @param {string} log */
function logLink(log) {
  if (location.protocol !== "file:" || !/^logs\/inspect\/[\w.+-]+\.eval$/.test(log)) return null;
  return h("a", { href: log }, name(log, 60));
}

/** Places where models were served one after the other. @param {State} state */
function turns(state) {
  const rows = (state.view.results?.turns ?? []).map((one) => [
    plain(one.on, 80),
    count(one.models),
    count(one.swaps),
    duration(one.seconds),
  ]);
  return rows.length ? titled("Models that took turns", ["On", "Models", "Loads", "Time for them"], rows) : null;
}

/** What batch services have. @param {State} state */
function batches(state) {
  const rows = state.view.batches.map((one) => [
    name(one.model, 60),
    plain(one.batch ?? "being handed in", 60),
    plain(one.cancelled ? "being cancelled" : "pending", 20),
    moment(one.since),
    count(one.requests),
  ]);
  return rows.length
    ? titled("Pending at batch services", ["Model", "Batch", "State", "Since", "Requests"], rows, 4)
    : null;
}

/** @param {number | null} value */
function seconds(value) {
  return value === null ? "–" : value < 1 ? `${Math.round(1000 * value)} ms` : duration(value);
}

/** @param {State} state */
function events(state) {
  const { view } = state;
  const shown = view.events.slice(-SHOWN).reverse();
  if (!shown.length) return null;
  const left = view.events.length - shown.length;
  return [
    titled(
      "Events, the latest first",
      ["Time", "What", "Details"],
      shown.map((event) => [
        moment(event.at),
        EVENTS[event.kind] ?? plain(event.kind.replaceAll("_", " ")),
        h("span", { class: "wrap" }, plain(event.text ?? details(event.body), 600)),
      ]),
      3,
    ),
    left ? h("p", { class: "note" }, `and ${plural(left, "earlier event")}`) : null,
  ];
}

/** The facts of an event, such as "answers: 3"; what is 0 or unknown is left out. @param {EventView["body"]} body */
function details(body) {
  return Object.entries(body)
    .filter(([, value]) => value)
    .map(
      ([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "number" ? Number(value.toFixed(4)) : value}`,
    )
    .join(" · ");
}

/** @param {string} title @param {string[]} head @param {Child[][]} rows */
function titled(title, head, rows, texts = 1) {
  return [h("h3", null, title), region(title, "tall", table({ caption: title, head, rows, texts }))];
}
