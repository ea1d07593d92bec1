// The page to label answers on: one after another, by keyboard, without a word about the model. Texts are shown as the
// grader read them, character by character.

import { h } from "./dom.js";
import { messageOf, visible } from "./text.js";
/** @import { Child } from "./dom.js" */

/**
 * An answer to label, or the end of the session.
 * @typedef {{over: boolean, place: number, number: number, given: string | null, texts: {name: string, text: string}[],
 *   fields: {name: string, levels: string[]}[]}} LabelState with the earlier label as given, and the number of answers
 */

const SEPARATOR = ", ";
const MAX_KEYS = 9;
/** @type {Record<string, string>} */
const ACTIONS = { s: "skip", u: "back" };

/** @param {HTMLElement} page */
function openLabels(page) {
  /** @type {LabelState | null} */
  let state = null;
  /** The levels that are chosen, one a field. @type {string[]} */
  let levels = [];
  let busy = false;

  const show = (/** @type {string} */ title, /** @type {Child[]} */ ...content) => {
    const heading = [h("p", { class: "brand" }, "adaptive-eval"), h("h1", { role: "status" }, title)];
    page.replaceChildren(h("header", { class: "top" }, heading), h("main", null, content));
  };
  const showEnd = (/** @type {Child[]} */ ...text) =>
    show("Label answers", h("p", { class: "over", role: "status" }, text));

  const draw = () => {
    if (!state) return;
    if (state.over) return showEnd("Nothing is left to label in this session. ", key("u"), " back ", key("q"), " end");
    const texts = state.texts.map(({ name, text }) =>
      h("section", null, h("h2", null, name), h("pre", { dir: "auto" }, visible(text))),
    );
    show(`${state.place} of ${state.number}`, texts, choices(state, levels));
  };

  /** @param {string} path @param {string} [method] */
  const send = async (path, method = "POST") => {
    if (busy) return;
    busy = true;
    try {
      const response = await fetch(path, { method });
      if (!response.ok) throw new Error(await response.text());
      const before = state?.place;
      state = /** @type {LabelState} */ (await response.json());
      levels = [];
      draw();
      if (state.place !== before) window.scrollTo(0, 0);
    } catch (error) {
      show("Label answers", h("p", { class: "problem", role: "alert" }, messageOf(error)));
    } finally {
      busy = false;
    }
  };

  const choose = (/** @type {number} */ number) => {
    const level = state?.fields[levels.length]?.levels[number];
    if (!state || state.over || level === undefined) return;
    const chosen = [...levels, level];
    if (chosen.length === state.fields.length)
      return void send(`label?place=${state.place}&label=${encodeURIComponent(chosen.join(SEPARATOR))}`);
    levels = chosen;
    draw();
  };

  const end = async () => {
    state = null;
    showEnd("Done. Your labels are stored; you can close this page.");
    await fetch("end", { method: "POST" }).catch(() => null);
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
    const pressed = event.key.toLowerCase();
    if (/^[1-9]$/.test(pressed)) choose(Number(pressed) - 1);
    else if (Object.hasOwn(ACTIONS, pressed)) void send(`${ACTIONS[pressed]}?place=${state.place}`);
    else if (pressed === "q") void end();
  });
  void send("now", "GET");
}

/** @param {string} text */
function key(text) {
  return h("kbd", null, text);
}

/** The levels of the next field, each with its key. @param {LabelState} state @param {string[]} chosen */
function choices({ fields, given }, chosen) {
  const field = fields[chosen.length];
  if (!field) return h("footer", { class: "choices" });
  const levels = field.levels
    .slice(0, MAX_KEYS)
    .map((level, index) => h("li", null, key(String(index + 1)), ` ${level}`));
  const others = [...Object.entries(ACTIONS), ["q", "end"]];
  const actions = others.map(([pressed, action]) => h("li", { class: "quiet" }, key(pressed), ` ${action}`));
  return h("footer", { class: "choices" }, [
    given ? h("p", { class: "quiet" }, `You said: ${given}`) : null,
    chosen.length ? h("p", { class: "quiet" }, chosen.join(SEPARATOR)) : null,
    fields.length > 1 ? h("b", null, `${field.name}: `) : null,
    h("ul", null, levels, actions),
  ]);
}

const page = document.getElementById("page");
if (page) openLabels(page);
