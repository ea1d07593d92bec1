// Long tables: a row is drawn whole once it has come into sight. Until then it has what names it, so that the search of
// the browser finds it and the keyboard gets there; on paper all are whole.

/** @import { State } from "./parts.js" */

const AT_ONCE = 30;
const NEAR = "400px";

/** The parts of lists that have been in sight. @type {Set<string>} */
const seen = new Set();

/** The part of a list that a row is in. @param {string} list @param {number} at */
export function partOf(list, at) {
  return `${list} ${Math.floor(at / AT_ONCE)}`;
}

/** Whether a row of a list is drawn whole. @param {State} state @param {string} list @param {number} at */
export function isWhole({ printing }, list, at) {
  return printing || at < AT_ONCE || seen.has(partOf(list, at));
}

/**
 * Has `draw` called when rows come into sight that are not whole, which their `data-unseen` says; what it gives is to be
 * called after each drawing.
 * @param {HTMLElement} root @param {() => void} draw
 */
export function whenSeen(root, draw) {
  const observer = new IntersectionObserver(
    (entries) => {
      const before = seen.size;
      for (const { isIntersecting, target } of entries)
        if (isIntersecting) seen.add(/** @type {HTMLElement} */ (target).dataset.unseen ?? "");
      if (seen.size > before) draw();
    },
    { rootMargin: NEAR },
  );
  return () => {
    observer.disconnect();
    for (const row of root.querySelectorAll("[data-unseen]")) observer.observe(row);
  };
}
