// A real run for the demonstration: results.json, or the trials of an export (CSV, npz). Files are hostile: all is checked.

/** Right or wrong by model, question and trial. @typedef {{names: string[], answers: number[][][]}} Trials */
/** @typedef {{name: string, score: number, lo: number, hi: number, tier: number}} Row */
/** @typedef {{trials: Trials} | {rows: Row[]}} Loaded */

const MOST_CELLS = 4_000_000;

/** @param {File} file @returns {Promise<Loaded>} */
export async function load(file) {
  if (file.size > 200_000_000) throw new Error("the file is larger than 200 MB");
  if (file.name.endsWith(".npz")) return { trials: await ofArrays(new Uint8Array(await file.arrayBuffer())) };
  const text = await file.text();
  if (file.name.endsWith(".json")) return { rows: ofResults(text) };
  if (file.name.endsWith(".csv")) return { trials: ofTable(text) };
  throw new Error("it must be results.json, or an export as .csv or .npz");
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

/** @param {Uint8Array} bytes @returns {Promise<Trials>} */
async function ofArrays(bytes) {
  const parts = await unzipped(bytes);
  const outcomes = parts.get("R.npy");
  if (!outcomes) throw new Error("it has no array R of outcomes; counts alone have no order of trials");
  const { shape, at } = numbers(outcomes);
  if (shape.length !== 3) throw new Error(`R must have the axes model, question and trial, got ${shape.length}`);
  const [models, questions, trials] = shape;
  const value = (/** @type {number} */ l, /** @type {number} */ m, /** @type {number} */ t) =>
    at((l * questions + m) * trials + t);
  const answers = Array.from({ length: models }, (_l, l) =>
    Array.from({ length: questions }, (_m, m) =>
      Array.from({ length: trials }, (_t, t) => value(l, m, t)).filter((one) => one >= 0),
    ),
  );
  if (answers.flat(2).some((one) => one > 1)) throw new Error("answers must be right or wrong (categories 0 and 1)");
  const named = parts.get("models.npy");
  const names = named ? texts(named) : [];
  return even(
    answers.map((_own, l) => names[l] ?? `model-${l + 1}`),
    answers,
  );
}

/** The members of a zip, by name. @param {Uint8Array} bytes */
async function unzipped(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error("it is not an .npz file");
  /** @type {Map<string, Uint8Array>} */
  const found = new Map();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    const [method, packed] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true)];
    const [name, extra, note] = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const header = view.getUint32(at + 42, true);
    const start = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
    const body = bytes.slice(start, start + packed);
    const title = new TextDecoder().decode(bytes.slice(at + 46, at + 46 + name));
    if (title === "R.npy" || title === "models.npy") found.set(title, method ? await inflated(body) : body);
    at += 46 + name + extra + note;
  }
  return found;
}

/** @param {Uint8Array<ArrayBuffer>} body */
async function inflated(body) {
  const stream = new Blob([body]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader();
  const pieces = [];
  let size = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > 8 * MOST_CELLS + 4096) throw new Error("its arrays are too large for this page");
    pieces.push(next.value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

/** The header of an .npy. @param {Uint8Array} bytes */
function opened(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isOld = bytes[6] === 1;
  const length = isOld ? view.getUint16(8, true) : view.getUint32(8, true);
  const start = (isOld ? 10 : 12) + length;
  const header = new TextDecoder().decode(bytes.slice(isOld ? 10 : 12, start));
  const kind = /'descr': *'([^']+)'/.exec(header)?.[1] ?? "";
  const shape = (/'shape': *\(([^)]*)\)/.exec(header)?.[1] ?? "")
    .split(",")
    .filter((one) => one.trim())
    .map(Number);
  if (/'fortran_order': *True/.test(header)) throw new Error("its arrays must be in C order");
  if (shape.reduce((all, one) => all * one, 1) > MOST_CELLS) throw new Error("its arrays are too large for this page");
  return { view, start, kind, shape };
}

/** @param {Uint8Array} bytes */
function numbers(bytes) {
  const { view, start, kind, shape } = opened(bytes);
  /** @type {Record<string, (place: number) => number>} */
  const readers = {
    "|i1": (place) => view.getInt8(start + place),
    "|u1": (place) => view.getUint8(start + place),
    "|b1": (place) => view.getUint8(start + place),
    "<i2": (place) => view.getInt16(start + 2 * place, true),
    "<i4": (place) => view.getInt32(start + 4 * place, true),
    "<i8": (place) => Number(view.getBigInt64(start + 8 * place, true)),
  };
  if (!readers[kind]) throw new Error(`R must hold whole numbers, got ${kind}`);
  return { shape, at: readers[kind] };
}

/** @param {Uint8Array} bytes */
function texts(bytes) {
  const { view, start, kind, shape } = opened(bytes);
  const width = Number(/^<U(\d+)$/.exec(kind)?.[1] ?? 0);
  return Array.from({ length: width ? (shape[0] ?? 0) : 0 }, (_, row) => {
    const codes = Array.from({ length: width }, (_code, at) => view.getUint32(start + 4 * (row * width + at), true));
    return codes.map((code) => (code && code < 0x110000 ? String.fromCodePoint(code) : "")).join("");
  });
}
