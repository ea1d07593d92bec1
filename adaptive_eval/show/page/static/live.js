// Following a run: its progress is asked for every second while somebody looks, and the view when that has changed.

import { Unreachable, readProgress, readView } from "./sent.js";

/**
 * @typedef {object} Callbacks
 * @property {(view: RunView) => void} onView
 * @property {(pulse: RunProgress) => void} onPulse
 * @property {(found: "live" | "waiting" | "ended") => void} onState
 */

const PAUSE = 1000;
const VIEW_PAUSE = 3000;

/**
 * Follows the run behind `api`; tells `onView(view)`, `onPulse(pulse)` and `onState("live" | "waiting" | "ended")`.
 * @param {string} api @param {Callbacks} callbacks
 */
export async function follow(api, { onView, onPulse, onState }) {
  let [state, edition, step, viewed] = ["", "", -1, -Infinity];
  const tell = (/** @type {"live" | "waiting" | "ended"} */ found) => {
    if (found !== state) onState(found);
    state = found;
  };
  const ask = async () => {
    const found = await readProgress(api, step);
    const running = found.status === "running";
    // drawing a view takes a tenth of a second
    const stale = found.edition !== edition && !(running && performance.now() - viewed < VIEW_PAUSE);
    if (stale) {
      onView(await readView(api));
      [edition, viewed] = [found.edition, performance.now()];
    }
    tell(running ? "live" : "ended");
    // a view was read after the progress, so its cells are the newer ones
    if (running && found.step !== step) onPulse(stale ? { ...found, cells: [] } : found);
    step = found.step;
  };
  await ask();
  for (;;) {
    await new Promise((resume) => setTimeout(resume, PAUSE));
    if (document.hidden)
      await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
    await ask().catch((error) => {
      if (error instanceof Unreachable) tell("waiting");
      else console.error(error); // the next change may be drawn
    });
  }
}
