// Answers worth a note, requests that were repeated, and the events of the run.

import { h } from "./dom.js";
import { blocks, note, titledTable } from "./parts.js";
import { moment, plain, plural } from "./text.js";
/** @import { Section } from "./parts.js" */

const MAX_EVENTS = 300;

/** @type {Section} */
export const trouble = {
  id: "traffic",
  title: "Answers, requests, events",
  render({ view }) {
    return [blocks(view, "traffic"), events(view)];
  },
};

/** @param {PageView} view */
function events(view) {
  const told = view.events.filter(({ text }) => text !== null);
  const shown = told.slice(-MAX_EVENTS).reverse();
  const earlier = told.length - shown.length;
  return [
    titledTable({
      className: "tall",
      caption: "Events, the latest first",
      texts: 3,
      rows: shown,
      columns: [
        ["Time", (event) => moment(event.at)],
        ["Event", (event) => plain(event.kind.replaceAll("_", " "))],
        ["Details", (event) => h("span", { class: "wrap" }, plain(event.text, 600))],
      ],
    }),
    earlier ? note(`and ${plural(earlier, "earlier event")}`) : null,
  ];
}
