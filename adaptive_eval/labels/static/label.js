// The page to label answers on: one at a time, by keyboard, without a word of whose they are.

import { h } from "./dom.js";
import { keyWithFormulas, withFormulas } from "./latex.js";
import { messageOf } from "./text.js";

/** @typedef {{name: string, levels: string[]}} FieldShown */
/** @typedef {{name: string, text: string}} TextShown */
/**
 * @typedef {object} LabelState
 * @property {boolean} over
 * @property {number} place
 * @property {number} number
 * @property {string | null} given
 * @property {TextShown[]} texts
 * @property {FieldShown[]} fields
 */

const JOINED = ", ";
const ACTS = { s: "skip", u: "back" };

/** @param {HTMLElement} page */
function openLabels(page) {
  /** @type {LabelState | null} */
  let state = null;
  /** @type {string[]} */
  let said = [];
  let busy = false;

  /** @param {Node[]} children */
  function show(...children) {
    page.replaceChildren(...children);
  }

  /** @param {string} what */
  function ended(what) {
    state = null;
    show(heading("Label answers"), h("p", { class: "over", role: "status" }, what));
  }

  function draw() {
    if (!state) return;
    if (state.over) {
      const what = "Nothing is left to label in this session. ";
      show(
        heading("Label answers"),
        h("p", { class: "over", role: "status" }, what, key("u"), " back ", key("q"), " end"),
      );
      return;
    }
    const texts = state.texts.map((one) => {
      const drawn = one.name === "reference" ? keyWithFormulas(one.text) : withFormulas(one.text);
      return h("section", null, h("h2", null, one.name), h("pre", null, drawn));
    });
    show(heading(`${state.place} of ${state.number}`), ...texts, choices(state, said));
  }

  /** @param {string} path @param {string} [method] */
  async function ask(path, method = "POST") {
    if (busy) return;
    busy = true;
    try {
      const response = await fetch(path, { method });
      if (!response.ok) throw new Error(await response.text());
      const before = state?.place;
      state = /** @type {LabelState} */ (await response.json());
      said = [];
      draw();
      if (state.place !== before) window.scrollTo(0, 0);
    } catch (error) {
      show(heading("Label answers"), h("p", { class: "problem", role: "alert" }, messageOf(error)));
    } finally {
      busy = false;
    }
  }

  /** @param {number} number */
  function choose(number) {
    const field = state?.fields[said.length];
    const level = field?.levels[number];
    if (!state || state.over || level === undefined) return;
    const chosen = [...said, level];
    if (chosen.length === state.fields.length)
      return void ask(`label?place=${state.place}&label=${encodeURIComponent(chosen.join(JOINED))}`);
    said = chosen;
    draw();
  }

  async function end() {
    ended("Done. Your labels are stored; you can close this page.");
    await fetch("end", { method: "POST" }).catch(() => null);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
    const pressed = event.key.toLowerCase();
    if (/^[1-9]$/.test(pressed)) choose(Number(pressed) - 1);
    else if (pressed in ACTS) void ask(`${ACTS[/** @type {keyof typeof ACTS} */ (pressed)]}?place=${state.place}`);
    else if (pressed === "q") void end();
  });
  void ask("now", "GET");
}

/** @param {string} text */
function heading(text) {
  return h("header", { class: "top" }, h("p", { class: "brand" }, "adaptive-eval"), h("h1", { role: "status" }, text));
}

/** @param {string} text */
function key(text) {
  return h("kbd", null, text);
}

/** What can be said now, and by which keys. @param {LabelState} state @param {string[]} said */
function choices(state, said) {
  const field = state.fields[said.length];
  if (!field) return h("footer", { class: "choices" });
  const named = state.fields.length > 1 ? h("b", null, `${field.name}: `) : null;
  const levels = field.levels.slice(0, 9).map((level, at) => h("li", null, key(String(at + 1)), ` ${level}`));
  const others = [
    ["s", "skip"],
    ["u", "back"],
    ["q", "end"],
  ].map(([pressed, what]) => h("li", { class: "quiet" }, key(String(pressed)), ` ${what}`));
  const before = state.given ? h("p", { class: "quiet" }, `You said: ${state.given}`) : null;
  const so = said.length ? h("p", { class: "quiet" }, said.join(JOINED)) : null;
  return h("footer", { class: "choices" }, before, so, named, h("ul", null, levels, others));
}

const page = document.getElementById("page");
if (page) openLabels(page);
