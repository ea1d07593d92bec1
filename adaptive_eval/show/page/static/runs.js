// Several runs of one folder, side by side.

import { signIcon } from "./chart.js";
import { h, update } from "./dom.js";
import { VERDICTS, verdictWord } from "./facts.js";
import { json } from "./live.js";
import { count, moment, name, percent, plain } from "./text.js";

const PAUSE = 5000;

/** Fills the page with a table of runs, and keeps it up to date. */
export async function showRuns(page, root) {
  const body = h("div", { class: "body" });
  page.append(
    h("header", { class: "top" }, h("p", { class: "brand" }, "adaptive-eval"), h("h1", null, "Runs")),
    h("section", { class: "sheet", "aria-label": "Runs" }, body),
  );
  const refresh = async () => {
    try {
      if (!document.hidden) update(body, h("div", null, table(await json(`${root}api/runs`), root)));
    } catch (error) {
      update(
        body,
        h(
          "div",
          null,
          h("p", { class: "problem", role: "status" }, `The list cannot be read now: ${plain(error.message)}`),
        ),
      );
    }
    setTimeout(refresh, PAUSE);
  };
  await refresh();
}

function table(runs, root) {
  if (!runs.length) return h("p", { class: "quiet" }, "There is no run in this folder yet.");
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" },
    h(
      "table",
      null,
      h("caption", { class: "unseen" }, "Runs in this folder"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, "Run"),
          h("th", { scope: "col" }, "Status"),
          h("th", { scope: "col" }, "First"),
          ["Models", "Questions", "Trials", "of cap"].map((title) => h("th", { scope: "col", class: "digits" }, title)),
          h("th", { scope: "col" }, "Comparisons"),
          ["Begun", "Updated"].map((title) => h("th", { scope: "col" }, `${title}, UTC`)),
        ),
      ),
      h(
        "tbody",
        null,
        runs.map((run) =>
          h(
            "tr",
            { "data-key": run.name },
            h(
              "th",
              { scope: "row" },
              h("a", { href: `${root}run/${encodeURIComponent(run.name)}/` }, name(run.name, 60)),
            ),
            h(
              "td",
              null,
              h(
                "span",
                { class: `status ${run.status}` },
                plain(run.status),
                run.reason && run.status === "finished"
                  ? h("small", null, plain(run.reason.replaceAll("_", " ")))
                  : null,
              ),
              // an error is a sentence, in which nothing may be replaced
              run.reason && run.status === "stopped" ? h("small", { class: "why" }, plain(run.reason, 160)) : null,
            ),
            h("td", null, run.best === null ? "–" : name(run.best, 40)),
            h("td", { class: "digits" }, count(run.models)),
            h("td", { class: "digits" }, count(run.questions)),
            h("td", { class: "digits" }, count(run.trials)),
            h("td", { class: "digits" }, run.cap ? percent(run.trials / run.cap) : "–"),
            h(
              "td",
              null,
              h(
                "span",
                { class: "counts" },
                VERDICTS.filter((verdict) => run[verdict]).map((verdict) =>
                  h(
                    "span",
                    { class: `badge v-${verdict}`, "data-tip": verdictWord(verdict) },
                    signIcon(verdict),
                    `${count(run[verdict])} ${verdictWord(verdict)}`,
                  ),
                ),
              ),
            ),
            [run.created, run.updated].map((at) => h("td", null, moment(at).replace(" UTC", ""))),
          ),
        ),
      ),
    ),
  );
}
