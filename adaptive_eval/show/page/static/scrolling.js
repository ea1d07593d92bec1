// Parts of the page that scroll sideways say so: a fading edge where there is more.

/** Marks what in `root` has more to its left or right. @param {Element} root */
export function markEdges(root) {
  for (const box of root.querySelectorAll(".scroll")) mark(box);
}

/** Keeps the marks true while somebody scrolls. */
export function followEdges() {
  document.addEventListener(
    "scroll",
    (event) => event.target instanceof Element && event.target.matches(".scroll") && mark(event.target),
    { capture: true, passive: true },
  );
}

/** @param {Element} box */
function mark(box) {
  const room = box.scrollWidth - box.clientWidth;
  const more = [box.scrollLeft > 1 && "left", box.scrollLeft < room - 1 && "right"].filter(Boolean).join(" ");
  if (more !== (box.getAttribute("data-more") ?? "")) box.setAttribute("data-more", more);
}
