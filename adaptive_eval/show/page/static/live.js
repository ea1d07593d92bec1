// Following a run: the server says when there is something new, and the view is fetched again.

import { Unreachable, pulseOf, readView } from "./sent.js";
/** @import { ProgressMessage, RunView } from "./sent.js" */

/**
 * @typedef {object} Callbacks
 * @property {(view: RunView) => void} onView
 * @property {(pulse: ProgressMessage) => void} onPulse
 * @property {(found: "live" | "waiting" | "ended") => void} onState
 */

const LEAST_PAUSE = 1000;
const REOPEN_PAUSE = 3000;

/**
 * Follows the run behind `api`; tells `onView(view)`, `onPulse(pulse)` and `onState("live" | "waiting" | "ended")`.
 * @param {string} api @param {Callbacks} callbacks
 */
export async function follow(api, { onView, onPulse, onState }) {
  const fetching = fetcher(api, onView);
  await fetching.now();
  listen(`${api}live`, { onPulse, onState, onNews: fetching.soon });
  document.addEventListener("visibilitychange", () => !document.hidden && fetching.catchUp());
}

/** @param {string} address @param {{onPulse: Callbacks["onPulse"], onState: Callbacks["onState"], onNews: () => void}} callbacks */
function listen(address, callbacks) {
  const { onPulse, onState, onNews } = callbacks;
  const stream = new EventSource(address);
  let ended = false;
  stream.addEventListener("open", () => !ended && onState("live"));
  stream.addEventListener("error", () => {
    if (!ended) onState("waiting");
    // it comes back by itself where the connection was lost, but not where the server had another answer
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => listen(address, callbacks), REOPEN_PAUSE);
  });
  stream.addEventListener("view", () => {
    ended = false;
    onState("live");
    onNews();
  });
  stream.addEventListener("pulse", (event) => {
    ended = false;
    onPulse(pulseOf(event));
  });
  stream.addEventListener("end", () => {
    ended = true;
    onState("ended");
    onNews();
  });
}

/**
 * Fetches at most once a second, one at a time, and not while nobody looks.
 * @param {string} api @param {Callbacks["onView"]} onView
 */
function fetcher(api, onView) {
  let [due, running, last] = [false, false, 0];
  const now = async () => {
    const view = await readView(api).finally(() => (last = performance.now()));
    onView(view);
  };
  const soon = async () => {
    due = true;
    if (running) return;
    running = true;
    while (due && !document.hidden) {
      await new Promise((resume) => setTimeout(resume, Math.max(0, last + LEAST_PAUSE - performance.now())));
      due = false;
      await now().catch((error) => {
        if (!(error instanceof Unreachable)) throw error;
        due = true;
      });
    }
    running = false;
  };
  return { now, soon, catchUp: () => due && soon() };
}
