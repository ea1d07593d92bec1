// The page of one run: sections that are drawn when they come near, and drawn again in place when something changes.

import { onNight } from "./chart.js";
import { questionDialog } from "./dialog.js";
import { h, update } from "./dom.js";
import { entry, factsOf, pairKey, pairText, verdictWord } from "./facts.js";
import { glossary } from "./glossary.js";
import { heat } from "./heat.js";
import { labels } from "./labels.js";
import { follow } from "./live.js";
import { matrix } from "./matrix.js";
import { overview, statusOf, subtitle } from "./overview.js";
import { followFolds } from "./parts.js";
import { posteriors } from "./posteriors.js";
import { ranking } from "./ranking.js";
import { recipe } from "./recipe.js";
import { whenSeen } from "./rows.js";
import { rubrics } from "./rubrics.js";
import { showRuns } from "./runs.js";
import { followEdges, markEdges } from "./scrolling.js";
import { embeddedView, readAnswers } from "./sent.js";
import { settling } from "./settling.js";
import { spending } from "./spending.js";
import { stopping } from "./stopping.js";
import { messageOf, name, plain } from "./text.js";
import { openTerms, term } from "./terms.js";
import { openTips } from "./tip.js";
import { trajectories } from "./trajectories.js";
import { trouble } from "./trouble.js";
/** @import { Facts } from "./facts.js" */
/** @import { Section, State } from "./parts.js" */
/** @import { CellNews, ProgressMessage, RunView } from "./sent.js" */

/**
 * `watchRows` is to be called when it has been drawn.
 * @typedef {object} Part
 * @property {Section} section
 * @property {HTMLElement} root
 * @property {HTMLElement} body
 * @property {boolean} due
 * @property {boolean} near
 * @property {() => void} watchRows
 */

const SECTIONS = [
  overview,
  ranking,
  stopping,
  trajectories,
  settling,
  matrix,
  heat,
  posteriors,
  rubrics,
  labels,
  spending,
  trouble,
  recipe,
  glossary,
];
const NEAR = "600px";
const PAPER = 1000;
const ROOM_BEFORE = 60;

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
    navigation(),
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
      part.watchRows();
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
    if (part.near) draw(part);
  };
  const dialog = questionDialog(state, api === null ? null : (...asked) => readAnswers(api, ...asked));
  const all = () => parts.forEach(ask);
  const catchUp = () => whenIdle([...parts.values()], (part) => part.due && draw(part));
  const print = (/** @type {boolean} */ printing) => {
    Object.assign(state, { printing, width: printing ? PAPER : 0 });
    if (!printing) measure();
    parts.forEach(draw);
  };
  const measure = () => {
    const width = Math.floor(entry(parts, "overview").body.clientWidth);
    if (width === state.width) return false;
    state.width = width;
    return true;
  };

  measure();
  drawTop();
  watch(parts, (part) => part.due && draw(part));
  new ResizeObserver(() => measure() && all()).observe(entry(parts, "overview").body);
  onNight(all);
  followEdges();
  for (const part of parts.values()) {
    part.watchRows = whenSeen(part.body, () => draw(part));
    followFolds(part.body, () => draw(part));
  }
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  for (const part of parts.values()) part.section.wire?.(part.body, state);
  catchUp();

  return {
    show(/** @type {RunView} */ fresh) {
      announce(announcer, state.view, fresh, state.facts);
      Object.assign(state, { view: fresh, facts: factsOf(fresh) });
      drawTop();
      all();
      dialog.redraw();
      if (!state.live) catchUp(); // a run that is over is drawn whole, for whoever searches or reads it out
    },
    pulse(/** @type {ProgressMessage} */ pulse) {
      state.pulse = pulse;
      for (const cell of pulse.cells) learn(state.view, cell);
      drawTop();
      ask(entry(parts, "overview"));
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
      ask(entry(parts, "overview"));
    },
  };
}

/** Takes in what is known now of a model on a question. @param {RunView} view @param {CellNews} given */
function learn(view, { model, question, posterior }) {
  view.trials[model][question] = posterior.counts.reduce((sum, one) => sum + one, 0);
  view.posterior_of[model][question] = view.posteriors.push(posterior) - 1;
}

/** @param {Section} section @returns {Part} */
function partOf(section) {
  const body = h("div", { class: "body" });
  const heading = `${section.id}-title`;
  const root = h(
    "section",
    { id: section.id, class: "sheet", "aria-labelledby": heading },
    h("h2", { id: heading }, section.title),
    body,
  );
  return { section, root, body, due: true, near: false, watchRows: () => {} };
}

function navigation() {
  return h(
    "nav",
    { "aria-label": "Sections" },
    h(
      "ul",
      null,
      SECTIONS.map((section) => h("li", null, h("a", { href: `#${section.id}` }, section.short))),
    ),
  );
}

/** @param {State} state */
function title(state) {
  const { view } = state;
  const status = statusOf(view, state.live);
  return [
    h("p", { class: "brand" }, "adaptive-eval"),
    h(
      "h1",
      null,
      name(view.name),
      " ",
      h("span", { class: `status ${status.replaceAll(" ", "-")}` }, status),
      state.live && status === "running" ? h("span", { class: "pulse" }, "live") : null,
      state.waiting ? h("span", { class: "waiting", role: "status" }, "no connection, trying again …") : null,
    ),
    h("p", { class: "quiet" }, subtitle(view)),
  ];
}

/** @param {RunView} view */
function footer(view) {
  const run = view.results?.run;
  return h(
    "footer",
    { class: "quiet" },
    `adaptive-eval${run ? ` ${plain(run.version)}` : ""}. Scores are averages over trials (`,
    term("score", "avg@N"),
    "), so that models with unequal numbers of trials compare fairly; ",
    view.configuration.trials?.draw ? null : term("bayes", "Bayes@N"),
    view.configuration.trials?.draw ? null : " stands beside them. ",
    "Estimates after “Don’t Pass@k” (arXiv:2510.04265).",
  );
}

/**
 * Draws sections as they come near, and marks the one that is read in the navigation.
 * @param {Map<string, Part>} parts @param {(part: Part) => void} draw
 */
function watch(parts, draw) {
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const anchors = document.querySelectorAll("nav a");
  const links = new Map([...anchors].map((link) => [link.hash.slice(1), link]));
  const near = new IntersectionObserver(
    (entries) =>
      entries.forEach(({ isIntersecting, target }) => {
        const part = entry(parts, target.id);
        part.near = isIntersecting;
        if (part.near) draw(part);
      }),
    { rootMargin: NEAR },
  );
  const inSight = new Set();
  const read = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries)
        if (isIntersecting) inSight.add(target.id);
        else inSight.delete(target.id);
      const current = SECTIONS.find((section) => inSight.has(section.id))?.id;
      for (const [id, link] of links) {
        if (id !== current) link.removeAttribute("aria-current");
        else if (!link.hasAttribute("aria-current")) {
          link.setAttribute("aria-current", "true");
          /** @type {HTMLElement} */ (link.closest("ul")).scrollLeft = link.offsetLeft - ROOM_BEFORE;
        }
      }
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  for (const part of parts.values()) {
    near.observe(part.root);
    read.observe(part.root);
  }
}

/**
 * Does one thing after the other when the browser has time.
 * @template E @param {E[]} things @param {(thing: E) => void} work
 */
function whenIdle(things, work) {
  const idle = window.requestIdleCallback ?? ((next) => setTimeout(next, 30));
  const next = () => {
    const thing = things.shift();
    if (thing === undefined) return;
    work(thing);
    idle(next, { timeout: 500 });
  };
  idle(next, { timeout: 1500 });
}

/**
 * Says which verdicts are new, for those who do not see them.
 * @param {HTMLElement} announcer @param {RunView} before @param {RunView} after @param {Facts} facts
 */
function announce(announcer, before, after, facts) {
  const known = new Map((before.results?.pairs ?? []).map((pair) => [pairKey(pair.better, pair.worse), pair.verdict]));
  const fresh = (after.results?.pairs ?? []).filter(
    (pair) => pair.verdict !== "open" && known.get(pairKey(pair.better, pair.worse)) !== pair.verdict,
  );
  if (fresh.length)
    announcer.textContent = fresh
      .slice(0, 5)
      .map((pair) => `${pairText(facts, pair)}: ${verdictWord(pair.verdict)}`)
      .join("; ");
}

async function begin() {
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  openTips();
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
