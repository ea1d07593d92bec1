// Following a run: the server says when there is something new, and the view is fetched again.

const LEAST_PAUSE = 1000;

/** Follows the run behind `api`; tells `onView(view)`, `onPulse(pulse)` and `onState("live" | "waiting" | "ended")`. */
export async function follow(api, { onView, onPulse, onState }) {
  const fetching = fetcher(api, onView);
  await fetching.now();
  const stream = new EventSource(`${api}live`);
  let ended = false;
  stream.addEventListener("open", () => !ended && onState("live"));
  stream.addEventListener("error", () => !ended && onState("waiting"));
  stream.addEventListener("view", () => {
    ended = false;
    onState("live");
    fetching.soon();
  });
  stream.addEventListener("pulse", (event) => {
    ended = false;
    onPulse(JSON.parse(event.data));
  });
  stream.addEventListener("end", () => {
    ended = true;
    onState("ended");
    fetching.soon();
  });
  document.addEventListener("visibilitychange", () => !document.hidden && fetching.catchUp());
}

/** Fetches at most once a second, one at a time, and not while nobody looks. */
function fetcher(api, onView) {
  let [due, running, last] = [false, false, 0];
  const now = async () => {
    onView(await json(`${api}view`));
    last = performance.now();
  };
  const soon = async () => {
    due = true;
    if (running) return;
    running = true;
    while (due && !document.hidden) {
      await new Promise((resume) => setTimeout(resume, Math.max(0, last + LEAST_PAUSE - performance.now())));
      due = false;
      try {
        await now();
      } catch {
        due = true; // the stream reconnects by itself, and the view is asked for again
        last = performance.now();
      }
    }
    running = false;
  };
  return { now, soon, catchUp: () => due && soon() };
}

/** The JSON behind an address; an error that says what the server said. */
export async function json(address) {
  const response = await fetch(address, { cache: "no-cache" });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

/** How answers are read: a page of trials of a question by a model, after the trial of that number. */
export function trialsBehind(api) {
  return (question, model, after) =>
    json(`${api}question/${question}?model=${model}${after === null ? "" : `&after=${after}`}`);
}
