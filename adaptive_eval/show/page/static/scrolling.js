// A part of the page that scrolls sideways has a fading edge where there is more.

/** Marks the parts of `root` that have more to their left or right. @param {Element} root */
export function markEdges(root) {
  root.querySelectorAll(".scroll").forEach(mark);
}

/** Keeps the marks true while somebody scrolls. */
export function followEdges() {
  const follow = (/** @type {Event} */ { target }) =>
    target instanceof Element && target.matches(".scroll") && mark(target);
  document.addEventListener("scroll", follow, { capture: true, passive: true });
}

/** @param {Element} box */
function mark(box) {
  const room = box.scrollWidth - box.clientWidth;
  const more = [box.scrollLeft > 1 && "left", box.scrollLeft < room - 1 && "right"].filter(Boolean).join(" ");
  if (more !== (box.getAttribute("data-more") ?? "")) box.setAttribute("data-more", more);
}
