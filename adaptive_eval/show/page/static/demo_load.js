// A real run for the demonstration: results.json, or the trials of an export (CSV). Files are hostile: all is checked.

/** Right or wrong by model, question and trial. @typedef {{names: string[], answers: number[][][]}} Trials */
/** @typedef {{name: string, score: number, lo: number, hi: number, tier: number}} Row */
/** @typedef {{trials: Trials} | {rows: Row[]}} Loaded */

/** @param {File} file @returns {Promise<Loaded>} */
export async function load(file) {
  if (file.size > 200_000_000) throw new Error("the file is larger than 200 MB");
  const text = await file.text();
  if (file.name.endsWith(".json")) return { rows: ofResults(text) };
  if (file.name.endsWith(".csv")) return { trials: ofTable(text) };
  throw new Error("it must be results.json, or an export as .csv");
}

/** The ranking of a results.json. @param {string} text @returns {Row[]} */
export function ofResults(text) {
  const found = JSON.parse(text);
  const models = found?.models;
  if (!Array.isArray(models)) throw new Error("it has no models: is it the results.json of a run?");
  const rows = models
    .filter((one) => [one?.score, one?.lo, one?.hi, one?.tier].every(Number.isFinite))
    .map((one) => ({ name: String(one.name), score: one.score, lo: one.lo, hi: one.hi, tier: one.tier }));
  if (!rows.length) throw new Error("no model has a score yet");
  return rows;
}

/** Cells of a CSV, quotes understood. @param {string} text @returns {string[][]} */
export function cells(text) {
  const rows = [[""]];
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const [sign, row] = [text[at], /** @type {string[]} */ (rows.at(-1))];
    if (quoted && sign === '"' && text[at + 1] === '"') row[row.length - 1] += text[(at += 1)];
    else if (sign === '"') quoted = !quoted;
    else if (!quoted && sign === ",") row.push("");
    else if (!quoted && sign === "\n") rows.push([""]);
    else if (sign !== "\r" || quoted) row[row.length - 1] += sign;
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

/** One row a trial, with model, question and is_correct, correct or category. @param {string} text @returns {Trials} */
export function ofTable(text) {
  const [head = [], ...rows] = cells(text);
  const [model, question, trial] = ["model", "question", "trial"].map((name) => head.indexOf(name));
  const mark = ["is_correct", "correct", "category"].map((name) => head.indexOf(name)).find((place) => place >= 0);
  if (model < 0 || question < 0 || mark === undefined)
    throw new Error("it must have the columns model, question and is_correct (or category)");
  // rows lie as answers came, and short ones come first: the first trials are those with the first numbers
  if (trial >= 0) rows.sort((one, other) => Number(one[trial]) - Number(other[trial]));
  /** @type {Map<string, Map<string, number[]>>} */
  const found = new Map();
  for (const row of rows) {
    const value = { true: 1, True: 1, 1: 1, false: 0, False: 0, 0: 0 }[row[mark] ?? ""];
    if (value === undefined) {
      if (row[mark]) throw new Error(`answers must be right or wrong (1 or 0, true or false), got ${row[mark]}`);
      continue;
    }
    const own = found.get(row[model]) ?? new Map();
    found.set(row[model], own.set(row[question], [...(own.get(row[question]) ?? []), value]));
  }
  const questions = [...new Set([...found.values()].flatMap((own) => [...own.keys()]))];
  const answers = [...found.values()].map((own) => questions.map((one) => own.get(one) ?? []));
  return even([...found.keys()], answers);
}

/** As many trials of each question as all have. @param {string[]} names @param {number[][][]} answers @returns {Trials} */
export function even(names, answers) {
  const fewest = Math.min(...answers.flat().map((own) => own.length));
  if (names.length < 2 || fewest < 2 || !Number.isFinite(fewest))
    throw new Error("there must be at least 2 models, each with 2 trials of every question");
  return { names, answers: answers.map((own) => own.map((trials) => trials.slice(0, fewest))) };
}
