// Answers worth a note, requests that were repeated, and the events of the run.

import { h } from "./dom.js";
import { blocks, column, note, titledTable } from "./parts.js";
import { INSPECT_LOGS } from "./sent.js";
import { sites } from "./sites.js";
import { count, duration, moment, name, number, percent, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

const MAX_EVENTS = 300;

/** @type {Section} */
export const trouble = {
  id: "traffic",
  title: "Answers, requests, events",
  render(state) {
    const { view } = state;
    return [sites(state), answers(view), traffic(view), blocks(view, "batches"), events(view)];
  },
};

/** @param {PageView} view */
function answers({ results }) {
  const models = results?.models ?? [];
  if (!models.length) return null;
  const signals = [...new Set(models.flatMap((row) => Object.keys(row.signals)))].sort();
  /** @type {{title: string, answers: (row: ModelRow) => number}[]} */
  const counters = [
    ...signals.map((signal) => ({
      title: plain(signal.replaceAll("_", " ")),
      answers: (/** @type {ModelRow} */ row) => row.signals[signal] ?? 0,
    })),
    { title: "no grade", answers: (row) => row.ungraded },
    { title: "repeated word for word", answers: (row) => row.repeats },
  ];
  const present = counters.filter(({ answers }) => models.some((row) => answers(row)));
  if (!present.length) return note("No answer was truncated, empty, refused, repeated or left ungraded.");
  const share = (/** @type {number} */ part) => (part < 0.001 ? "< 0.1%" : percent(part, 1));
  const text = (/** @type {number} */ answers, /** @type {ModelRow} */ row) =>
    answers ? `${count(answers)} (${share(answers / Math.max(1, row.stored_trials))})` : "0";
  return titledTable({
    className: "tall",
    caption: "Answers worth a note",
    rows: models.filter((row) => present.some(({ answers }) => answers(row))),
    columns: [
      ["Model", (row) => name(row.name, 60)],
      ["Answers", (row) => count(row.stored_trials)],
      ...present.map(({ title, answers }) => column(title, (/** @type {ModelRow} */ row) => text(answers(row), row))),
    ],
  });
}

/** @param {PageView} view */
function traffic({ traffic }) {
  const hasLogs = traffic.some((row) => row.replica.startsWith(`${INSPECT_LOGS}/`));
  const command = h("code", null, `inspect view --log-dir ${INSPECT_LOGS}`);
  const start = "Inspect has the transcripts, in a log of each model for each start of the run: ";
  return [
    hasLogs ? note(start, command, " in the run’s directory shows them.") : null,
    titledTable({
      className: "tall",
      caption: hasLogs ? "Answers by model and log of Inspect" : "Answers by model and server",
      texts: 2,
      rows: traffic,
      columns: [
        ["Model", (row) => name(row.model, 60)],
        [hasLogs ? "Log of Inspect" : "Server", (row) => logLink(row.replica)],
        ["Answers", (row) => count(row.trials)],
        ["Retries", (row) => count(row.retries)],
        ["Retries per answer", (row) => number(row.retries / Math.max(1, row.trials))],
        ["Prompt tokens", (row) => count(row.prompt_tokens)],
        traffic.some((row) => row.cached_tokens) && ["From a cache", (row) => count(row.cached_tokens)],
        ["Completion tokens", (row) => count(row.completion_tokens)],
        ["Mean latency", (row) => seconds(row.latency)],
        traffic.some((row) => row.ttft !== null) && ["Time to first token", (row) => seconds(row.ttft)],
      ],
    }),
  ];
}

/** The name of a server, or a link to a log if the report lies in the run's directory. @param {string} replica */
function logLink(replica) {
  const isLog = location.protocol === "file:" && /^logs\/inspect\/[\w.+-]+\.eval$/.test(replica);
  return isLog ? h("a", { href: replica }, name(replica, 60)) : name(replica, 60);
}

/** @param {number | null} value */
function seconds(value) {
  return value !== null && value < 1 ? `${Math.round(1000 * value)} ms` : duration(value);
}

/** @param {PageView} view */
function events(view) {
  const told = view.events.filter(({ text }) => text !== null);
  const shown = told.slice(-MAX_EVENTS).reverse();
  const earlier = told.length - shown.length;
  return [
    titledTable({
      className: "tall",
      caption: "Events, the latest first",
      texts: 3,
      rows: shown,
      columns: [
        ["Time", (event) => moment(event.at)],
        ["Event", (event) => plain(event.kind.replaceAll("_", " "))],
        ["Details", (event) => h("span", { class: "wrap" }, plain(event.text, 600))],
      ],
    }),
    earlier ? note(`and ${plural(earlier, "earlier event")}`) : null,
  ];
}
