// Plain values as YAML that reads as a person would write it, and that a run reads as it was.

const SIMPLE = /^[A-Za-z_./][A-Za-z0-9_./ +()-]*$/;
const WORDS = /^(?:null|true|false|~|yes|no|on|off|y|n|\.nan|[+-]?\.inf)$/i;
// YAML, unlike JSON, does not take these as they are, even in quotes
const UNPRINTABLE = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;
const CONTROL = /[\u0000-\u0009\u000b-\u001f\ud800-\udfff]/;
const VARIABLE = /\$\{[A-Za-z_]\w*(?::-[^}]*)?\}/g;

/**
 * The text of a value; texts that YAML could read otherwise are quoted as in JSON, which is YAML too.
 * @param {any} value @returns {string}
 */
export function yaml(value, indent = "") {
  if (Array.isArray(value)) return value.map((element) => `${indent}- ${item(element, indent)}`).join("");
  const lines = Object.entries(value).map(([key, setting]) => `${indent}${scalar(key)}:${afterKey(setting, indent)}`);
  return lines.join("");
}

/** @param {any} value @param {string} indent */
function afterKey(value, indent) {
  if (isFilled(value))
    return isFlat(value) ? ` [${value.map(scalar).join(", ")}]\n` : `\n${yaml(value, `${indent}  `)}`;
  if (typeof value !== "string" || !value.includes("\n") || !fitsBlock(value)) return ` ${scalar(value)}\n`;
  const lines = literal(value).split("\n");
  return ` |-\n${lines.map((line) => (line ? `${indent}  ${line}` : "")).join("\n")}\n`;
}

/** @param {any} value @param {string} indent */
function item(value, indent) {
  return isFilled(value) ? yaml(value, `${indent}  `).trimStart() : `${scalar(value)}\n`;
}

/** @param {unknown} value */
function isFilled(value) {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}

/** @param {unknown} value */
function isFlat(value) {
  return Array.isArray(value) && value.every((element) => element === null || typeof element !== "object");
}

/** Whether a text comes back from a block as it was. @param {string} text */
function fitsBlock(text) {
  return !(/^[ \n]|\n$/.test(text) || CONTROL.test(text) || text.search(UNPRINTABLE) >= 0);
}

/** @param {unknown} value */
function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  if (SIMPLE.test(value) && !WORDS.test(value) && !value.endsWith(" ")) return value;
  const code = (/** @type {string} */ character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(literal(value)).replace(UNPRINTABLE, code);
}

/** What looks like a variable was written with two dollars. @param {string} text */
function literal(text) {
  return text.replace(VARIABLE, "$$$&");
}
