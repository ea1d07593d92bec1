// The page of one run: the finding and its cost, and sections that are drawn when they are opened. What is shown is
// drawn again in place when something changes.

import { onNight } from "./chart.js";
import { details, labels, recipe, traffic } from "./details.js";
import { questionDialog } from "./dialog.js";
import { h, update } from "./dom.js";
import { entry, factsOf, pairKey, pairText } from "./facts.js";
import { frontier } from "./frontier.js";
import { heat } from "./heat.js";
import { follow } from "./live.js";
import { matrix } from "./matrix.js";
import { cost, decided, subtitle } from "./overview.js";
import { followEdges, followFolds, markEdges } from "./parts.js";
import { posteriors } from "./posteriors.js";
import { ranking } from "./ranking.js";
import { embedded, readAnswers } from "./sent.js";
import { stopping } from "./stopping.js";
import { messageOf, name, plain } from "./text.js";
import { glossaryList, openTerms, term } from "./terms.js";
import { trajectories } from "./trajectories.js";
/** @import { Facts } from "./facts.js" */
/** @import { Connection } from "./live.js" */
/** @import { Section, State } from "./parts.js" */

/**
 * A section with its elements; `fold` is null where it is always shown, `due` whether it has to be drawn when it opens.
 * @typedef {{section: Section, root: HTMLElement, body: HTMLElement, fold: HTMLDetailsElement | null, due: boolean}} Part
 */

/** @type {Section} */
const glossary = { id: "words", title: "What the words mean", render: () => [glossaryList()] };
const SCORES = [ranking, frontier, cost, details, stopping, trajectories, matrix, heat, posteriors];
const CIRCUMSTANCES = [labels, traffic, recipe, glossary, decided];
const PAPER_WIDTH = 1000;
const MAX_ANNOUNCED = 5;

/** A page with its state, and with answers if a server has them. @param {HTMLElement} page @param {PageView} view */
function openPage(page, view, hasAnswers = true) {
  const initial = { ui: {}, pulse: null, live: false, waiting: false, printing: false, width: 0 };
  /** @type {State} */
  const state = {
    ...initial,
    view,
    facts: factsOf(view),
    refresh: (id) => draw(entry(parts, id)),
    openQuestion: (question, model) => dialog.open(question, model),
  };
  const top = h("div", { class: "sheet title" });
  const announcer = h("p", { class: "unseen", role: "status", "aria-live": "polite" });
  const parts = new Map([...SCORES, ...CIRCUMSTANCES].map((section) => [section.id, partOf(section)]));
  const roots = [...parts.values()].map((part) => part.root);
  page.append(h("header", { class: "top" }, top), h("main", { id: "main" }, roots), footer(view), announcer);

  const drawTop = () => update(top, h("div", null, title(state)));
  const draw = (/** @type {Part} */ part) => {
    const { body, section } = part;
    part.due = false;
    try {
      update(body, h("div", null, section.render(state)));
      section.painted?.(body, state);
      markEdges(body);
    } catch (error) {
      console.error(error); // a section that fails takes no other with it
      const problem = h("p", { class: "problem" }, `This cannot be drawn: ${plain(messageOf(error))}`);
      update(body, h("div", null, problem));
    }
  };
  const drawIfOpen = (/** @type {Part} */ part) => {
    part.due = true;
    part.root.hidden = part.section.isThere?.(state) === false;
    if (!part.root.hidden && (part.fold === null || part.fold.open)) draw(part);
  };
  const drawSections = (/** @type {string[]} */ ...ids) => ids.forEach((id) => drawIfOpen(entry(parts, id)));
  const drawAll = () => parts.forEach(drawIfOpen);
  const dialog = questionDialog(state, hasAnswers ? readAnswers : null);
  const widest = entry(parts, "ranking").body;
  const measure = () => {
    const width = Math.floor(widest.clientWidth);
    const isChanged = width !== state.width;
    state.width = width;
    return isChanged;
  };
  const print = (/** @type {boolean} */ printing) => {
    Object.assign(state, { printing, width: printing ? PAPER_WIDTH : 0 });
    if (!printing) measure();
    for (const { fold } of parts.values()) if (fold) fold.open = printing;
    drawAll();
  };

  measure();
  drawTop();
  new ResizeObserver(() => measure() && drawAll()).observe(widest);
  onNight(drawAll);
  followEdges();
  for (const part of parts.values()) {
    followFolds(part.body, () => draw(part));
    part.fold?.addEventListener("toggle", ({ target }) => target === part.fold && part.due && drawIfOpen(part));
    part.section.wire?.(part.body, state);
  }
  top.addEventListener("click", ({ target }) => {
    const part = target instanceof HTMLAnchorElement ? parts.get(target.hash.slice(1)) : undefined;
    if (part?.fold) part.fold.open = true;
  });
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  drawAll();

  return {
    onView(/** @type {PageView} */ fresh) {
      const before = state.view;
      Object.assign(state, { view: fresh, facts: factsOf(fresh) });
      announce(announcer, before, state.facts);
      drawTop();
      drawAll();
      dialog.redraw();
    },
    onPulse(/** @type {RunProgress} */ pulse) {
      state.pulse = pulse;
      drawTop();
      drawSections("cost");
    },
    onConnection(/** @type {Connection} */ connection) {
      Object.assign(state, { live: connection === "live", waiting: connection === "waiting" });
      if (connection === "ended") state.pulse = null;
      drawTop();
      drawSections("ranking", "cost");
    },
  };
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
function title({ view, live, waiting }) {
  const status = view.findings.state;
  return [
    h("p", { class: "brand" }, "adaptive-eval"),
    h("h1", null, [
      [name(view.name), " ", h("span", { class: `status ${status}` }, status)],
      live && status === "running" ? h("span", { class: "pulse" }, "live") : null,
      waiting ? h("span", { class: "waiting", role: "status" }, "no connection, trying again …") : null,
    ]),
    h("p", { class: "quiet" }, subtitle(view)),
  ];
}

/** @param {PageView} view */
function footer({ results }) {
  const version = results ? ` ${plain(results.run.version)}` : "";
  return h("footer", { class: "quiet" }, [
    [`adaptive-eval${version}. Scores are averages over trials (`, term("score", "avg@N"), "), so that models with "],
    "unequal numbers of trials compare fairly. Estimates after “Don’t Pass@k” (arXiv:2510.04265).",
  ]);
}

/**
 * Says which verdicts are new, for those who do not see them.
 * @param {HTMLElement} announcer @param {PageView} before @param {Facts} facts
 */
function announce(announcer, before, facts) {
  const earlier = new Map(before.results?.pairs.map((pair) => [pairKey(pair.first, pair.second), pair.verdict]));
  const fresh = facts.pairs.filter(
    ({ first, second, verdict }) => verdict !== "open" && earlier.get(pairKey(first, second)) !== verdict,
  );
  const lines = fresh.slice(0, MAX_ANNOUNCED).map((pair) => `${pairText(facts, pair)}: ${pair.word}`);
  if (lines.length) announcer.textContent = lines.join("; ");
}

async function begin() {
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  openTerms();
  const carried = embedded("view");
  if (carried) openPage(page, carried, false);
  else await monitor(page);
}

/** @param {HTMLElement} page */
async function monitor(page) {
  /** @type {ReturnType<typeof openPage> | null} */
  let opened = null;
  try {
    await follow({
      onView(view) {
        if (opened === null) opened = openPage(page, view);
        else opened.onView(view);
      },
      onPulse: (pulse) => opened?.onPulse(pulse),
      onConnection: (connection) => opened?.onConnection(connection),
    });
  } catch (error) {
    const text = `The run cannot be read: ${plain(messageOf(error))}. Reload the page to try again.`;
    page.append(h("p", { class: "problem", role: "alert" }, text));
  }
}

begin();
