// The trials of a real run for the demonstration, from an export (CSV). Files are hostile: all is checked.

/** Right or wrong by model, question and trial. @typedef {{names: string[], answers: number[][][]}} Trials */

const MAX_BYTES = 200_000_000;
const MARKS = ["is_correct", "correct", "category"];
const [RIGHT, WRONG] = [new Set(["1", "true", "True"]), new Set(["0", "false", "False"])];

/** @param {File} file @returns {Promise<Trials>} */
export async function load(file) {
  if (!file.name.endsWith(".csv")) throw new Error("the file must be an export as .csv");
  if (file.size > MAX_BYTES) throw new Error("the file is larger than 200 MB");
  return trialsOf(cells(await file.text()));
}

/** Cells of a CSV, quotes understood. @param {string} text @returns {string[][]} */
function cells(text) {
  const rows = [[""]];
  let quoted = false;
  for (let index = 0; index < text.length; index += 1) {
    const [sign, row] = [text[index], rows[rows.length - 1]];
    if (quoted && sign === '"' && text[index + 1] === '"') row[row.length - 1] += text[(index += 1)];
    else if (sign === '"') quoted = !quoted;
    else if (!quoted && sign === ",") row.push("");
    else if (!quoted && sign === "\n") rows.push([""]);
    else if (sign !== "\r" || quoted) row[row.length - 1] += sign;
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

/** One row a trial; as many trials of each question as all have. @param {string[][]} rows @returns {Trials} */
function trialsOf([head = [], ...rows]) {
  const [model, question, trial] = ["model", "question", "trial"].map((name) => head.indexOf(name));
  const mark = MARKS.map((name) => head.indexOf(name)).find((column) => column >= 0);
  if (model < 0 || question < 0 || mark === undefined)
    throw new Error("it must have the columns model, question and is_correct (or category)");
  // rows lie as answers came, and short ones come first: the first trials are those with the first numbers
  if (trial >= 0) rows.sort((a, b) => Number(a[trial]) - Number(b[trial]));
  /** @type {Map<string, Map<string, number[]>>} */
  const models = new Map();
  for (const row of rows.filter((row) => row[mark])) {
    if (!RIGHT.has(row[mark]) && !WRONG.has(row[mark]))
      throw new Error(`answers must be right or wrong (1 or 0, true or false), got ${row[mark]}`);
    const questions = models.get(row[model]) ?? new Map();
    const earlier = questions.get(row[question]) ?? [];
    models.set(row[model], questions.set(row[question], [...earlier, Number(RIGHT.has(row[mark]))]));
  }
  const all = [...new Set([...models.values()].flatMap((questions) => [...questions.keys()]))];
  const answers = [...models.values()].map((questions) => all.map((name) => questions.get(name) ?? []));
  const fewest = Math.min(...answers.flat().map((trials) => trials.length));
  if (models.size < 2 || fewest < 2)
    throw new Error("there must be at least 2 models, each with 2 trials of every question");
  return {
    names: [...models.keys()],
    answers: answers.map((questions) => questions.map((trials) => trials.slice(0, fewest))),
  };
}
