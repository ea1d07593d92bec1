// Plain values as YAML that reads as a person would write it.

const SIMPLE = /^[A-Za-z_./][A-Za-z0-9_./ +()-]*$/;
const WORDS = /^(?:null|true|false|~|yes|no|on|off|y|n)$/i;

/** The text of a value; texts that YAML could read otherwise are quoted as in JSON, which is YAML too. */
export function yaml(value, indent = "") {
  if (Array.isArray(value)) return value.map((one) => `${indent}- ${item(one, indent)}`).join("");
  return Object.entries(value).map(([key, one]) => `${indent}${scalar(key)}:${after(one, indent)}`).join("");
}

function after(value, indent) {
  if (value !== null && typeof value === "object" && Object.keys(value).length) return Array.isArray(value) && value.every((one) => one === null || typeof one !== "object") ? ` [${value.map(scalar).join(", ")}]\n` : `\n${yaml(value, `${indent}  `)}`;
  if (typeof value === "string" && value.includes("\n") && blockable(value)) return ` |-\n${value.split("\n").map((line) => (line ? `${indent}  ${line}` : "")).join("\n")}\n`;
  return ` ${scalar(value)}\n`;
}

function item(value, indent) {
  if (value !== null && typeof value === "object" && Object.keys(value).length) return yaml(value, `${indent}  `).trimStart();
  return `${scalar(value)}\n`;
}

/** Whether a text comes back from a block as it was. */
function blockable(text) {
  return !/^[ \n]|[\t\r\v\f\u0000-\u0008\u0085\u2028\u2029\ufeff]|\n$/.test(text);
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return SIMPLE.test(value) && !WORDS.test(value) && !value.endsWith(" ") ? value : JSON.stringify(value);
}
