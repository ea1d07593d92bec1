// Words that explain themselves: buttons that show their entry in the glossary, by pointer, touch and keyboard.

import { h } from "./dom.js";
import { embedded } from "./sent.js";

const GAP = 6;
const EDGE = 8;
const LEAVING_MS = 200;

/** @type {Glossary | null} */
let words = null;

function glossary() {
  words ??= /** @type {Glossary} */ (embedded("glossary"));
  return words;
}

/** A word of the glossary, as a button that explains it. @param {TermKey} key @param {string} label */
export function term(key, label = glossary()[key].name) {
  return h("button", { type: "button", class: "term", "data-term": key, "aria-describedby": `word-${key}` }, label);
}

/** The whole glossary: what the buttons are described by, and what paper has instead of them. */
export function glossaryList() {
  const entries = Object.entries(glossary()).map(([key, { name, text }]) =>
    h("div", null, h("dt", null, name), h("dd", { id: `word-${key}` }, text)),
  );
  return h("dl", { class: "glossary" }, entries);
}

/** Shows the explanation of a word while the pointer or the focus is on it; a press holds it until the next one. */
export function openTerms() {
  const bubble = h("div", { class: "bubble", role: "tooltip", hidden: true });
  document.body.append(bubble);
  /** @type {{button: HTMLElement | null, held: boolean, leaving: number}} */
  const shown = { button: null, held: false, leaving: 0 };
  const hide = () => {
    clearTimeout(shown.leaving);
    Object.assign(shown, { button: null, held: false });
    bubble.hidden = true;
  };
  const show = (/** @type {HTMLElement} */ button, /** @type {boolean} */ held) => {
    clearTimeout(shown.leaving);
    Object.assign(shown, { button, held });
    // an open dialog covers everything but what lies in it
    const home = document.querySelector("dialog[open]") ?? document.body;
    if (bubble.parentElement !== home) home.append(bubble);
    const { name, text } = glossary()[/** @type {TermKey} */ (button.dataset.term)];
    bubble.replaceChildren(h("b", null, name), h("p", null, text));
    bubble.hidden = false;
    place(bubble, button);
  };
  const follow = () => {
    if (!shown.button) return;
    const box = shown.button.getBoundingClientRect();
    if (!shown.button.isConnected || box.bottom < 0 || box.top > innerHeight) hide();
    else place(bubble, shown.button);
  };
  const wordAt = (/** @type {Event} */ event) =>
    event.target instanceof Element ? /** @type {HTMLElement | null} */ (event.target.closest(".term")) : null;
  const inBubble = (/** @type {Event} */ event) => event.target instanceof Node && bubble.contains(event.target);

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch" || shown.held) return;
    const word = wordAt(event);
    if (word) show(word, false);
    else if (inBubble(event)) clearTimeout(shown.leaving);
    else if (shown.button && shown.button !== document.activeElement) {
      clearTimeout(shown.leaving);
      shown.leaving = window.setTimeout(hide, LEAVING_MS); // time to reach the explanation itself
    }
  });
  document.addEventListener("focusin", (event) => {
    const word = wordAt(event);
    if (word?.matches(":focus-visible")) show(word, false);
  });
  document.addEventListener("focusout", (event) => wordAt(event) === shown.button && hide());
  document.addEventListener("click", (event) => {
    const word = wordAt(event);
    if (word && !(shown.held && word === shown.button)) show(word, true);
    else if (!inBubble(event)) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !shown.button) return;
    event.preventDefault(); // a dialog around it stays open
    hide();
  });
  document.addEventListener("scroll", follow, { capture: true, passive: true });
  window.addEventListener("resize", follow);
}

/** Below the word if there is room, else above it. @param {HTMLElement} bubble @param {HTMLElement} button */
function place(bubble, button) {
  const box = button.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - bubble.offsetWidth - EDGE);
  const below = box.bottom + GAP;
  const top = below + bubble.offsetHeight > innerHeight - EDGE ? box.top - GAP - bubble.offsetHeight : below;
  bubble.style.left = `${Math.max(EDGE, left)}px`;
  bubble.style.top = `${Math.max(EDGE, top)}px`;
}
