// One small note beside the pointer or the focused element: what a mark stands for.

import { h } from "./dom.js";

const GAP = 14;
const box = h("div", { class: "tip", role: "presentation", "aria-hidden": "true" });

/** Shows notes for everything in the document that has `data-tip`. */
export function openTips() {
  document.body.append(box);
  document.addEventListener("pointermove", (event) => {
    const marked = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    if (marked) showTip(marked.getAttribute("data-tip") ?? "", event.clientX, event.clientY);
    else hideTip();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  document.addEventListener("scroll", hideTip, { capture: true, passive: true });
}

/** @param {string} text @param {number} x @param {number} y */
function showTip(text, x, y) {
  // an open dialog covers everything but what lies in it
  const home = document.querySelector("dialog[open]") ?? document.body;
  if (box.parentElement !== home) home.append(box);
  if (box.textContent !== text) box.textContent = text;
  box.classList.add("shown");
  const left = x + GAP + box.offsetWidth > innerWidth ? x - GAP - box.offsetWidth : x + GAP;
  const top = y + GAP + box.offsetHeight > innerHeight ? y - GAP - box.offsetHeight : y + GAP;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  box.classList.remove("shown");
}
