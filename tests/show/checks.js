// What a reader who does not see, or not well, needs of a page: functions for the tests to call in it.

const checks = {
  /** Everything without a name, tables without scopes, identifiers that are there twice. */
  nameless() {
    const label = (one) => one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.textContent;
    const hidden = (one) => one.getAttribute("aria-hidden") === "true";
    const isImage = (one) => one.getAttribute("role") === "img" && one.getAttribute("aria-label");
    const isReached = (one) => one.tabIndex >= 0 || one.querySelector("[tabindex], button, a");
    const all = (selector, isBad) => [...document.querySelectorAll(selector)].filter(isBad);
    const named = "button, a, select, input, canvas, [role=region], nav, section, dialog[open], [role=grid]";
    const ids = all("[id]", () => true).map((one) => one.id);
    return [
      ...all("svg", (one) => !hidden(one) && !isImage(one)),
      ...all(named, (one) => !label(one).trim() && !one.labels?.length),
      ...all("table", (one) => !one.caption && !one.getAttribute("aria-label")),
      ...all("th", (one) => !["col", "row", "rowgroup"].includes(one.getAttribute("scope"))),
      ...all(
        "section, dialog[open]",
        (one) => !document.getElementById(one.getAttribute("aria-labelledby")) && !one.ariaLabel,
      ),
      ...all(".scroll", (one) => one.scrollWidth > one.clientWidth + 1 && !isReached(one)),
    ]
      .map((one) => one.outerHTML.slice(0, 200))
      .concat(ids.filter((id, at) => ids.indexOf(id) !== at));
  },

  /** Texts whose contrast with what lies behind them is below that of WCAG 2, level AA. */
  faint() {
    const found = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const one = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || one.closest("script, style, option, noscript, title, dialog:not([open])"))
        continue;
      const style = getComputedStyle(one);
      const ground = groundOf(one);
      const ink = over(rgba(one.namespaceURI.endsWith("svg") ? style.fill : style.color), ground);
      const size = parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const ratio = contrast(ink, ground);
      if (ratio < (isLarge ? 3 : 4.5)) found.set(`${one.tagName}.${one.getAttribute("class")}`, ratio.toFixed(2));
    }
    return [...found];
  },

  /** The contrast of marks with the page: [selector, ratio] of those that are there. */
  marks(wanted) {
    const ground = groundOf(document.body);
    const there = wanted.map(([selector, property]) => [selector, document.querySelector(selector), property]);
    return there
      .filter(([, one]) => one)
      .map(([selector, one, property]) => [
        selector,
        contrast(over(rgba(getComputedStyle(one)[property]), ground), ground),
      ]);
  },

  /** The drawn shape of each verdict's sign: its outline, and whether it is full. */
  signs() {
    const shape = (one) => {
      const {
        class: _,
        "data-verdict": __,
        ...drawn
      } = Object.fromEntries([...one.attributes].map((at) => [at.name, at.value]));
      return JSON.stringify([one.tagName, drawn, getComputedStyle(one).fill === "none"]);
    };
    const badges = [...document.querySelectorAll("#stopping .panel .badge")];
    return Object.fromEntries(badges.map((badge) => [badge.textContent, shape(badge.querySelector(".sign"))]));
  },
};

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function rgba(colour) {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}

function over(top, below) {
  return below.map((one, at) => top[at] * top[3] + one * (1 - top[3]));
}

function groundOf(one) {
  const layers = [];
  for (let at = one; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
  return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
}

function luminance(colour) {
  const linear = colour.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((first, second) => second - first);
  return (high + 0.05) / (low + 0.05);
}
