// Formulas in LaTeX as MathML, which browsers draw themselves. Of a formula that is not understood whole, the source stays.

import { m } from "./dom.js";
/** @import { Child } from "./dom.js" */

/** @typedef {{tokens: string[], at: number, depth: number}} Source */

const FORMULA =
  /\$\$([^$]+)\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)|\\\(((?:(?!\\[()]).)+)\\\)|\\\[((?:(?!\\[[\]]).)+)\\\]|(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})/gsu;
const TOKEN = /\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|\s+|./gsu;
const LONGEST = 2000;
const DEEPEST = 30;

/** @param {string} names @param {string} signs */
function table(names, signs) {
  const all = signs.split(" ");
  return names.split(" ").map((name, at) => /** @type {[string, string]} */ ([`\\${name}`, all[at]]));
}

const LETTERS = new Map([
  ...table(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi varphi chi psi",
    "α β γ δ ϵ ε ζ η θ ι κ λ μ ν ξ π ρ σ τ ϕ φ χ ψ",
  ),
  ...table("omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega infty ell emptyset", "ω Γ Δ Θ Λ Π Σ Φ Ψ Ω ∞ ℓ ∅"),
]);
const SIGNS = new Map([
  ...table("cdot times div pm mp le leq ge geq ne neq approx equiv sim", "· × ÷ ± ∓ ≤ ≤ ≥ ≥ ≠ ≠ ≈ ≡ ∼"),
  ...table("in notin subset subseteq cup cap to rightarrow Rightarrow implies iff", "∈ ∉ ⊂ ⊆ ∪ ∩ → → ⇒ ⟹ ⟺"),
  ...table("mid parallel perp angle triangle circ ldots cdots dots sum prod int", "∣ ∥ ⊥ ∠ △ ∘ … ⋯ … ∑ ∏ ∫"),
  ...table("lfloor rfloor lceil rceil langle rangle prime { } % $ & | #", "⌊ ⌋ ⌈ ⌉ ⟨ ⟩ ′ { } % $ & ∥ #"),
]);
const SPACES = new Set(["\\,", "\\;", "\\:", "\\!", "\\ ", "\\quad", "\\qquad", "\\displaystyle", "\\left", "\\right"]);
const FUNCTIONS = new Set("sin cos tan log ln exp lim max min gcd lcm mod det deg".split(" ").map((one) => `\\${one}`));
const MATRICES = new Map([
  ["matrix", ["", ""]],
  ["pmatrix", ["(", ")"]],
  ["bmatrix", ["[", "]"]],
  ["vmatrix", ["|", "|"]],
  ["cases", ["{", ""]],
]);

/** A text with its formulas drawn. @param {string} text @returns {Child[]} */
export function withFormulas(text) {
  /** @type {Child[]} */
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(FORMULA)) {
    const inner = found.slice(1).find((one) => one !== undefined) ?? "";
    parts.push(text.slice(end, found.index), formula(inner, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

/** An answer key, which is often a formula without signs around it. @param {string} text @returns {Child[]} */
export function keyWithFormulas(text) {
  const isFormula = /\\[a-z]/i.test(text) && !/[a-z]{2}|\$|\\[([]/i.test(text.replace(/\\[a-z]+/gi, ""));
  return isFormula ? [formula(text, text)] : withFormulas(text);
}

/** @param {string} inner @param {string} source @returns {Child} */
function formula(inner, source) {
  if (inner.length > LONGEST) return source;
  const read = { tokens: inner.match(TOKEN) ?? [], at: 0, depth: 0 };
  try {
    const row = rowUntil(read, []);
    const display = source.startsWith("$$") || source.startsWith("\\[") ? "block" : null;
    return m("math", { display, title: source }, row);
  } catch {
    return source;
  }
}

/** @param {Source} read */
function peek(read) {
  while (/^\s/.test(read.tokens[read.at] ?? "") || SPACES.has(read.tokens[read.at])) read.at++;
  return read.tokens[read.at];
}

/** @param {Source} read @param {string} wanted */
function expect(read, wanted) {
  if (peek(read) !== wanted) throw new Error(`no ${wanted}`);
  read.at++;
}

/** Everything before one of these tokens, or to the end where there are none. @param {Source} read @param {string[]} ends */
function rowUntil(read, ends) {
  if (++read.depth > DEEPEST) throw new Error("too deep");
  const row = [];
  for (let next = peek(read); next !== undefined && !ends.includes(next); next = peek(read)) row.push(scripted(read));
  if (ends.length && read.at >= read.tokens.length) throw new Error("no end");
  read.depth--;
  return m("mrow", null, row);
}

/** An atom with what stands below and above it. @param {Source} read */
function scripted(read) {
  const base = atom(read);
  /** @type {Map<string, Element>} */
  const scripts = new Map();
  for (let next = peek(read); next === "^" || next === "_" || next === "'"; next = peek(read)) {
    const place = next === "_" ? "_" : "^";
    if (scripts.has(place)) throw new Error("twice");
    read.at++;
    scripts.set(place, next === "'" ? m("mo", null, "′") : atom(read));
  }
  const [below, above] = [scripts.get("_"), scripts.get("^")];
  if (below && above) return m("msubsup", null, base, below, above);
  if (below) return m("msub", null, base, below);
  return above ? m("msup", null, base, above) : base;
}

/** @param {Source} read */
function group(read) {
  expect(read, "{");
  const row = rowUntil(read, ["}"]);
  read.at++;
  return row;
}

/** The text in braces, as it is. @param {Source} read */
function words(read) {
  expect(read, "{");
  const end = read.tokens.indexOf("}", read.at);
  const text = read.tokens.slice(read.at, end).join("");
  if (end < 0 || /[\\{$]/.test(text)) throw new Error("no plain text");
  read.at = end + 1;
  return text;
}

/** @param {Source} read @returns {Element} */
function atom(read) {
  const token = peek(read);
  if (token === "{") return group(read);
  read.at++;
  if (token === undefined || "}^_&%#~$".includes(token)) throw new Error("no atom");
  if (/^\d/.test(token)) return m("mn", null, token);
  if (LETTERS.has(token)) return m("mi", null, LETTERS.get(token));
  if (SIGNS.has(token)) return m("mo", null, SIGNS.get(token));
  if (FUNCTIONS.has(token)) return m("mi", null, token.slice(1));
  if (!token.startsWith("\\")) return m(/\p{L}/u.test(token) ? "mi" : "mo", null, token === "-" ? "−" : token);
  return command(read, token);
}

/** @param {Source} read @param {string} token @returns {Element} */
function command(read, token) {
  switch (token) {
    case "\\frac":
    case "\\dfrac":
    case "\\tfrac":
      return m("mfrac", null, atom(read), atom(read));
    case "\\binom":
      return m("mrow", null, fence("("), m("mfrac", { linethickness: "0" }, atom(read), atom(read)), fence(")"));
    case "\\sqrt": {
      if (peek(read) !== "[") return m("msqrt", null, atom(read));
      read.at++;
      const index = rowUntil(read, ["]"]);
      read.at++;
      return m("mroot", null, atom(read), index);
    }
    case "\\boxed":
      return m("mrow", { class: "boxed" }, group(read));
    case "\\text":
    case "\\textbf":
    case "\\mathrm":
    case "\\operatorname":
      return m("mtext", null, words(read));
    case "\\overline":
      return m("mover", null, group(read), m("mo", null, "‾"));
    case "\\begin":
      return matrix(read);
  }
  throw new Error(`unknown: ${token}`);
}

/** @param {string} sign */
function fence(sign) {
  return sign ? m("mo", { fence: "true" }, sign) : null;
}

/** @param {Source} read */
function matrix(read) {
  const name = words(read);
  const [left, right] = MATRICES.get(name) ?? [];
  if (left === undefined) throw new Error(`unknown: ${name}`);
  const rows = [[cell(read)]];
  for (let next = peek(read); next !== "\\end"; next = peek(read)) {
    read.at++;
    if (next === "&") rows[rows.length - 1].push(cell(read));
    else rows.push([cell(read)]);
  }
  read.at++;
  if (words(read) !== name) throw new Error("another end");
  const shown = m(
    "mtable",
    null,
    rows.map((row) => m("mtr", null, row)),
  );
  return m("mrow", null, fence(left), shown, fence(right));
}

/** @param {Source} read */
function cell(read) {
  return m("mtd", null, rowUntil(read, ["&", "\\\\", "\\end"]));
}
