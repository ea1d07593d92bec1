// The page of one run: what was found and what it cost, and sections that are drawn when they are opened. What is shown
// is drawn again in place when something changes.

import { onNight } from "./chart.js";
import { details } from "./details.js";
import { questionDialog } from "./dialog.js";
import { h, update } from "./dom.js";
import { entry, factsOf, pairKey, pairText } from "./facts.js";
import { glossary } from "./glossary.js";
import { heat } from "./heat.js";
import { labels } from "./labels.js";
import { follow } from "./live.js";
import { matrix } from "./matrix.js";
import { cost, decided, statusOf, subtitle } from "./overview.js";
import { followFolds } from "./parts.js";
import { posteriors } from "./posteriors.js";
import { ranking } from "./ranking.js";
import { recipe } from "./recipe.js";
import { rubrics } from "./rubrics.js";
import { showRuns } from "./runs.js";
import { followEdges, markEdges } from "./scrolling.js";
import { embeddedView, readAnswers, readTranscript } from "./sent.js";
import { stopping } from "./stopping.js";
import { messageOf, name, plain } from "./text.js";
import { openTerms, term } from "./terms.js";
import { trajectories } from "./trajectories.js";
import { trouble } from "./trouble.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */

/**
 * `fold` is null where a section is always shown.
 * @typedef {object} Part
 * @property {Section} section
 * @property {HTMLElement} root
 * @property {HTMLElement} body
 * @property {HTMLDetailsElement | null} fold
 * @property {boolean} due
 */

const SECTIONS = [
  ranking,
  cost,
  details,
  stopping,
  trajectories,
  matrix,
  heat,
  posteriors,
  rubrics,
  labels,
  trouble,
  recipe,
  glossary,
  decided,
];
const PAPER = 1000;

/**
 * One page: its state, and how it is drawn.
 * @param {HTMLElement} page @param {RunView} view @param {string | null} api
 */
function openPage(page, view, api) {
  /** @type {State} */
  const state = {
    view,
    facts: factsOf(view),
    ui: {},
    pulse: null,
    live: false,
    waiting: false,
    printing: false,
    width: 0,
    refresh: (id) => draw(entry(parts, id)),
    openQuestion: (question, model) => dialog.open(question, model),
  };
  const top = h("div", { class: "sheet title" });
  const announcer = h("p", { class: "unseen", role: "status", "aria-live": "polite" });
  const parts = new Map(SECTIONS.map((section) => [section.id, partOf(section)]));
  page.append(
    h("header", { class: "top" }, top),
    h(
      "main",
      { id: "main" },
      [...parts.values()].map((part) => part.root),
    ),
    footer(view),
    announcer,
  );

  const drawTop = () => update(top, h("div", null, title(state)));
  const draw = (/** @type {Part} */ part) => {
    part.due = false;
    try {
      update(part.body, h("div", null, part.section.render(state)));
      part.section.painted?.(part.body, state);
      markEdges(part.body);
    } catch (error) {
      console.error(error); // one section that fails takes no other with it
      update(
        part.body,
        h("div", null, h("p", { class: "problem" }, `This cannot be drawn: ${plain(messageOf(error))}`)),
      );
    }
  };
  const ask = (/** @type {Part} */ part) => {
    part.due = true;
    part.root.hidden = part.section.isThere?.(state) === false;
    if (!part.root.hidden && (part.fold === null || part.fold.open)) draw(part);
  };
  const dialog = questionDialog(state, api === null ? null : (...asked) => readAnswers(api, ...asked), (...asked) =>
    readTranscript(api ?? "", ...asked),
  );
  const all = () => parts.forEach(ask);
  const print = (/** @type {boolean} */ printing) => {
    Object.assign(state, { printing, width: printing ? PAPER : 0 });
    if (!printing) measure();
    for (const { fold } of parts.values()) if (fold) fold.open = printing;
    all();
  };
  const measure = () => {
    const width = Math.floor(entry(parts, "ranking").body.clientWidth);
    if (width === state.width) return false;
    state.width = width;
    return true;
  };

  measure();
  drawTop();
  new ResizeObserver(() => measure() && all()).observe(entry(parts, "ranking").body);
  onNight(all);
  followEdges();
  for (const part of parts.values()) {
    followFolds(part.body, () => draw(part));
    part.fold?.addEventListener("toggle", ({ target }) => target === part.fold && part.due && ask(part));
  }
  top.addEventListener("click", ({ target }) => {
    const part = target instanceof HTMLAnchorElement ? parts.get(target.hash.slice(1)) : undefined;
    if (part?.fold) part.fold.open = true;
  });
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  for (const part of parts.values()) part.section.wire?.(part.body, state);
  all();

  return {
    show(/** @type {RunView} */ fresh) {
      const before = state.view;
      Object.assign(state, { view: fresh, facts: factsOf(fresh) });
      announce(announcer, before, state.facts);
      drawTop();
      all();
      dialog.redraw();
    },
    pulse(/** @type {RunProgress} */ pulse) {
      state.pulse = pulse;
      for (const cell of pulse.cells) learn(state.view, cell);
      drawTop();
      ask(entry(parts, "cost"));
      if (!state.view.results) ask(entry(parts, "ranking"));
      if (pulse.sites.length) ask(entry(parts, "traffic"));
      if (pulse.cells.length) {
        ask(entry(parts, "trials"));
        ask(entry(parts, "questions"));
        dialog.redraw();
      }
    },
    connection(/** @type {"live" | "waiting" | "ended"} */ found) {
      Object.assign(state, { live: found === "live", waiting: found === "waiting" });
      if (found === "ended") state.pulse = null;
      drawTop();
      ask(entry(parts, "ranking"));
      ask(entry(parts, "cost"));
    },
  };
}

/** Takes in what is known now of a model on a question. @param {RunView} view @param {CellUpdate} given */
function learn(view, { model, question, posterior }) {
  if (view.trials[model]?.[question] === undefined) return; // of a run with other models, whose view is fetched next
  view.trials[model][question] = posterior.counts.reduce((sum, one) => sum + one, 0);
  view.posterior_of[model][question] = view.posteriors.push(posterior) - 1;
}

/** @param {Section} section @returns {Part} */
function partOf(section) {
  const body = h("div", { class: "body" });
  const heading = `${section.id}-title`;
  const title = h("h2", { id: heading }, section.title);
  const fold = section.shown ? null : h("details", { class: "part" }, h("summary", null, title), body);
  const root = h("section", { id: section.id, class: "sheet", "aria-labelledby": heading }, fold ?? [title, body]);
  return { section, root, body, fold, due: true };
}

/** @param {State} state */
function title(state) {
  const { view } = state;
  const status = statusOf(view, state.live);
  return [
    h("p", { class: "brand" }, "adaptive-eval"),
    h("h1", null, [
      name(view.name),
      " ",
      h("span", { class: `status ${status}` }, status),
      state.live && status === "running" ? h("span", { class: "pulse" }, "live") : null,
      state.waiting ? h("span", { class: "waiting", role: "status" }, "no connection, trying again …") : null,
    ]),
    h("p", { class: "quiet" }, subtitle(view)),
  ];
}

/** @param {RunView} view */
function footer(view) {
  const run = view.results?.run;
  return h("footer", { class: "quiet" }, [
    `adaptive-eval${run ? ` ${plain(run.version)}` : ""}. Scores are averages over trials (`,
    term("score", "avg@N"),
    "), so that models with unequal numbers of trials compare fairly; ",
    view.configuration.trials?.draw ? null : term("bayes", "Bayes@N"),
    view.configuration.trials?.draw ? null : " stands beside them. ",
    "Estimates after “Don’t Pass@k” (arXiv:2510.04265).",
  ]);
}

/**
 * Says which verdicts are new, for those who do not see them.
 * @param {HTMLElement} announcer @param {RunView} before @param {Facts} facts
 */
function announce(announcer, before, facts) {
  const known = new Map((before.results?.pairs ?? []).map((pair) => [pairKey(pair.better, pair.worse), pair.verdict]));
  const fresh = facts.pairs.filter(
    (pair) => pair.verdict !== "open" && known.get(pairKey(pair.better, pair.worse)) !== pair.verdict,
  );
  if (fresh.length)
    announcer.textContent = fresh
      .slice(0, 5)
      .map((pair) => `${pairText(facts, pair)}: ${pair.word}`)
      .join("; ");
}

async function begin() {
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  openTerms();
  const embedded = embeddedView();
  const { api, runs } = document.documentElement.dataset;
  if (embedded) openPage(page, embedded, null);
  else if (runs !== undefined) await showRuns(page, runs);
  else await monitor(page, api ?? "");
}

/** @param {HTMLElement} page @param {string} api */
async function monitor(page, api) {
  /** @type {ReturnType<typeof openPage> | null} */
  let shown = null;
  try {
    await follow(api, {
      onView(view) {
        if (shown === null) shown = openPage(page, view, api);
        else shown.show(view);
      },
      onPulse: (pulse) => shown?.pulse(pulse),
      onState: (found) => shown?.connection(found),
    });
  } catch (error) {
    page.append(
      h(
        "p",
        { class: "problem", role: "alert" },
        `The run cannot be read: ${plain(messageOf(error))}. Reload the page to try again.`,
      ),
    );
  }
}

begin();
