// What a server sends, or a report carries. tests/show/page_types.py writes its types from the Python ones.

/** What the document carries: the run of a report, or the glossary. @param {"view" | "glossary"} id */
export function embedded(id) {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
}

/** The view of the run. @returns {Promise<PageView>} */
export function readView() {
  return json("api/view");
}

/** Totals of now. @returns {Promise<RunProgress>} */
export function readProgress() {
  return json("api/progress");
}

/**
 * A page of trials of a question by a model, both by number, after the trial of that number.
 * @param {number} question @param {number} model @param {number | null} after @returns {Promise<AnswersPage>}
 */
export function readAnswers(question, model, after) {
  return json(`api/question/${question}?model=${model}${after === null ? "" : `&after=${after}`}`);
}

/** The place of Inspect's logs in the directory of a run. */
export const INSPECT_LOGS = "logs/inspect";

/** The server did not answer, or not with what was asked for. */
export class Unreachable extends Error {}

/** The JSON behind an address. @param {string} address */
async function json(address) {
  const unreachable = (/** @type {Error} */ { message }) => {
    throw new Unreachable(message);
  };
  const response = await fetch(address, { cache: "no-cache" }).catch(unreachable);
  if (!response.ok) throw new Unreachable(`the server answered ${response.status}`);
  return response.json().catch(unreachable);
}
