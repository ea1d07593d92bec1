// Following a run: its progress is read every second while somebody looks, and the view when it has changed.

import { Unreachable, readProgress, readView } from "./sent.js";

/** @typedef {"live" | "waiting" | "ended"} Connection */
/**
 * @typedef {{onView: (view: PageView) => void, onPulse: (pulse: RunProgress) => void,
 *   onConnection: (connection: Connection) => void}} Handlers
 */

const PAUSE_MS = 1000;
const VIEW_PAUSE_MS = 3000;

/** Follows the run. @param {Handlers} handlers */
export async function follow({ onView, onPulse, onConnection }) {
  let [connection, edition, viewed] = ["", "", -Infinity];
  const report = (/** @type {Connection} */ fresh) => {
    if (fresh !== connection) onConnection(fresh);
    connection = fresh;
  };
  const read = async () => {
    const progress = await readProgress();
    // drawing a view takes a tenth of a second
    if (progress.edition !== edition && !(progress.running && performance.now() - viewed < VIEW_PAUSE_MS)) {
      onView(await readView());
      [edition, viewed] = [progress.edition, performance.now()];
    }
    report(progress.running ? "live" : "ended");
    if (progress.running) onPulse(progress);
  };
  await read();
  for (;;) {
    await new Promise((resume) => setTimeout(resume, PAUSE_MS));
    if (document.hidden)
      await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
    await read().catch((error) => {
      if (error instanceof Unreachable) report("waiting");
      else console.error(error); // the next change may be drawn
    });
  }
}
