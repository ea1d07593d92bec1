// Following a run: the server says when there is something new, and the view is fetched again.

const LEAST_PAUSE = 1000;
const REOPEN_PAUSE = 3000;

/** Follows the run behind `api`; tells `onView(view)`, `onPulse(pulse)` and `onState("live" | "waiting" | "ended")`. */
export async function follow(api, { onView, onPulse, onState }) {
  const fetching = fetcher(api, onView);
  await fetching.now();
  listen(`${api}live`, { onPulse, onState, onNews: fetching.soon });
  document.addEventListener("visibilitychange", () => !document.hidden && fetching.catchUp());
}

function listen(address, told) {
  const { onPulse, onState, onNews } = told;
  const stream = new EventSource(address);
  let ended = false;
  stream.addEventListener("open", () => !ended && onState("live"));
  stream.addEventListener("error", () => {
    if (!ended) onState("waiting");
    // it comes back by itself where the connection was lost, but not where the server had another answer
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => listen(address, told), REOPEN_PAUSE);
  });
  stream.addEventListener("view", () => {
    ended = false;
    onState("live");
    onNews();
  });
  stream.addEventListener("pulse", (event) => {
    ended = false;
    onPulse(JSON.parse(event.data));
  });
  stream.addEventListener("end", () => {
    ended = true;
    onState("ended");
    onNews();
  });
}

/** Fetches at most once a second, one at a time, and not while nobody looks. */
function fetcher(api, onView) {
  let [due, running, last] = [false, false, 0];
  const now = async () => {
    const view = await json(`${api}view`).finally(() => (last = performance.now()));
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

/** The server did not answer, or not with what was asked for. */
class Unreachable extends Error {}

/** The JSON behind an address; an error that says what the server said. */
export async function json(address) {
  const response = await fetch(address, { cache: "no-cache" }).catch((error) => {
    throw new Unreachable(error.message);
  });
  if (!response.ok) throw new Unreachable(`the server answered ${response.status}`);
  return response.json();
}

/** How answers are read: a page of trials of a question by a model, after the trial of that number. */
export function trialsBehind(api) {
  return (question, model, after) =>
    json(`${api}question/${question}?model=${model}${after === null ? "" : `&after=${after}`}`);
}
