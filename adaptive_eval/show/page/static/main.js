// The page of one run: sections that are drawn when they come near, and drawn again in place when something changes.

import { onNight } from "./chart.js";
import { questionDialog } from "./dialog.js";
import { h, update } from "./dom.js";
import { factsOf, pairKey, pairText, verdictWord } from "./facts.js";
import { heat } from "./heat.js";
import { follow, trialsBehind } from "./live.js";
import { matrix } from "./matrix.js";
import { overview, statusOf, subtitle } from "./overview.js";
import { posteriors } from "./posteriors.js";
import { ranking } from "./ranking.js";
import { recipe } from "./recipe.js";
import { showRuns } from "./runs.js";
import { settling } from "./settling.js";
import { spending } from "./spending.js";
import { stopping } from "./stopping.js";
import { name, plain } from "./text.js";
import { openTips } from "./tip.js";
import { trajectories } from "./trajectories.js";
import { trouble } from "./trouble.js";

const SECTIONS = [overview, ranking, stopping, trajectories, settling, matrix, heat, posteriors, spending, trouble, recipe];
const NEAR = "600px";
const PAPER = 1000;
const ROOM_BEFORE = 60;

/** One page: its state, and how it is drawn. */
function openPage(page, view, api) {
  const state = { view, facts: factsOf(view), ui: {}, pulse: null, live: false, printing: false, width: 0 };
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
  const draw = (part) => {
    part.due = false;
    try {
      update(part.body, h("div", null, part.section.render(state)));
      part.section.painted?.(part.body, state);
    } catch (error) {
      console.error(error); // one section that fails takes no other with it
      update(part.body, h("div", null, h("p", { class: "problem" }, `This cannot be drawn: ${plain(error.message)}`)));
    }
  };
  const ask = (part) => {
    part.due = true;
    if (part.near) draw(part);
  };
  state.refresh = (id) => draw(parts.get(id));
  const dialog = questionDialog(state, api === null ? null : trialsBehind(api));
  state.openQuestion = dialog.open;
  const all = () => parts.forEach(ask);
  const catchUp = () => whenIdle([...parts.values()], (part) => part.due && draw(part));
  const print = (printing) => {
    Object.assign(state, { printing, width: printing ? PAPER : 0 });
    if (!printing) measure();
    parts.forEach(draw);
  };
  const measure = () => {
    const width = Math.floor(parts.get("overview").body.clientWidth);
    if (width === state.width) return false;
    state.width = width;
    return true;
  };

  measure();
  drawTop();
  watch(parts, (part) => part.due && draw(part));
  new ResizeObserver(() => measure() && all()).observe(parts.get("overview").body);
  onNight(all);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  for (const part of parts.values()) part.section.wire?.(part.body, state);
  catchUp();

  return {
    show(fresh) {
      announce(announcer, state.view, fresh, state.facts);
      Object.assign(state, { view: fresh, facts: factsOf(fresh) });
      drawTop();
      all();
      dialog.redraw();
      if (!state.live) catchUp(); // a run that is over is drawn whole, for whoever searches or reads it out
    },
    pulse(pulse) {
      state.pulse = pulse;
      for (const [model, question, trials] of pulse.cells) state.view.trials[model][question] = trials;
      drawTop();
      ask(parts.get("overview"));
      if (pulse.cells.length) ask(parts.get("trials"));
    },
    connection(found) {
      Object.assign(state, { live: found === "live", waiting: found === "waiting" });
      if (found === "ended") state.pulse = null;
      drawTop();
      ask(parts.get("overview"));
    },
  };
}

function partOf(section) {
  const body = h("div", { class: "body" });
  const heading = `${section.id}-title`;
  const root = h(
    "section",
    { id: section.id, class: "sheet", "aria-labelledby": heading },
    h("h2", { id: heading }, section.title),
    body,
  );
  return { section, root, body, due: true, near: false };
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

function footer(view) {
  const run = view.results?.run;
  return h(
    "footer",
    { class: "quiet" },
    `adaptive-eval${run ? ` ${plain(run.version)}` : ""}. Scores are averages over trials, so that models with unequal `,
    "numbers of trials compare fairly; Bayes@N stands beside them. ",
    "Estimates after “Don’t Pass@k” (arXiv:2510.04265).",
  );
}

/** Draws sections as they come near, and marks the one that is read in the navigation. */
function watch(parts, draw) {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const near = new IntersectionObserver(
    (entries) =>
      entries.forEach((entry) => {
        const part = parts.get(entry.target.id);
        part.near = entry.isIntersecting;
        if (part.near) draw(part);
      }),
    { rootMargin: NEAR },
  );
  const read = new IntersectionObserver(
    (entries) =>
      entries.forEach((entry) => {
        const link = links.get(entry.target.id);
        if (entry.isIntersecting) {
          link.setAttribute("aria-current", "true");
          link.closest("ul").scrollLeft = link.offsetLeft - ROOM_BEFORE;
        } else link.removeAttribute("aria-current");
      }),
    { rootMargin: "-30% 0px -60% 0px" },
  );
  for (const part of parts.values()) {
    near.observe(part.root);
    read.observe(part.root);
  }
}

/** Does one thing after the other when the browser has time. */
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

/** Says which verdicts are new, for those who do not see them. */
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
  const page = document.getElementById("page");
  openTips();
  const embedded = document.getElementById("view");
  const { api, runs } = document.documentElement.dataset;
  if (embedded) openPage(page, JSON.parse(embedded.textContent), null);
  else if (runs !== undefined) await showRuns(page, runs);
  else await monitor(page, api);
}

async function monitor(page, api) {
  let shown = null;
  const onView = (view) => (shown === null ? (shown = openPage(page, view, api)) : shown.show(view));
  try {
    await follow(api, { onView, onPulse: (pulse) => shown.pulse(pulse), onState: (found) => shown.connection(found) });
  } catch (error) {
    page.append(
      h(
        "p",
        { class: "problem", role: "alert" },
        `The run cannot be read: ${plain(error.message)}. Reload the page to try again.`,
      ),
    );
  }
}

begin();
