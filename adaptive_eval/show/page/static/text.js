// Numbers and texts as people read them.

import { h } from "./dom.js";
/** @import { Child } from "./dom.js" */

const DASH = "–";
const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const STEPS = ["", "k", "M", "G", "T"];

// Controls, formats that change the direction of writing or take no room, halves of pairs, and private characters;
// joiners stay, since emoji and several scripts are written with them.
const UNSEEN = "\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb";
const ODD = new RegExp(`[\\p{Cc}\\p{Cs}\\p{Co}${UNSEEN}\\u{e0000}-\\u{e0fff}]`, "gu");

/** 4321 -> 4,321; 1234567 -> 1.23M. @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  if (Math.abs(value) < 100_000) return GROUPED.format(Number(fixed(value, 0)));
  let power = Math.min(Math.floor(Math.log10(Math.abs(value)) / 3), STEPS.length - 1);
  const part = value / 1000 ** power;
  let shown = Number(fixed(part, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(part))))));
  if (Math.abs(shown) >= 1000 && power < STEPS.length - 1) [shown, power] = [shown / 1000, power + 1];
  return `${shown}${STEPS[power]}`;
}

const MORE_DIGITS = 30;

/** A number with decimals; halves go to the even digit, as in Python. @param {number} value @param {number} digits */
function fixed(value, digits) {
  const exact = value.toFixed(digits + MORE_DIGITS);
  const [shown, beyond] = [exact.slice(0, -MORE_DIGITS).replace(/\.$/, ""), exact.slice(-MORE_DIGITS)];
  return /^50*$/.test(beyond) && /[02468]$/.test(shown) ? shown : value.toFixed(digits);
}

/** A number with so many decimals, with a true minus. @param {number | null | undefined} value */
export function number(value, digits = 2) {
  if (value === null || value === undefined) return DASH;
  const text = fixed(value, digits);
  return Number(text) < 0 ? `−${text.slice(1)}` : text.replace("-", "");
}

/** A share in percent. @param {number | null | undefined} value */
export function percent(value, digits = 0) {
  return value === null || value === undefined ? DASH : `${number(100 * value, digits)}%`;
}

/** A p-value, or any probability that may be tiny. @param {number | null | undefined} value */
export function chance(value) {
  if (value === null || value === undefined) return DASH;
  return value < 0.001 ? "< 0.001" : value > 0.999 && value < 1 ? "> 0.999" : value.toFixed(3);
}

/** @param {number | null | undefined} value */
export function usd(value) {
  if (value === null || value === undefined) return DASH;
  const most = Math.abs(value) < 0.01 ? 4 : 2;
  const shown = Number(fixed(value, most));
  return `$${shown.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: most })}`;
}

/**
 * A small amount: two significant digits, `decimals` to six decimals.
 * @param {number} value @param {number} decimals
 */
export function amount(value, decimals) {
  const places = value > 0 ? 1 - Math.floor(Math.log10(value)) : 0;
  return fixed(value, Math.min(Math.max(decimals, places), 6));
}

/** 75 -> 1m 15s; 9000 -> 2h 30m. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  if (seconds > 0 && seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, "0")}s`;
  if (whole < 259_200)
    return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
}

/** A moment, ISO text or seconds since 1970: the same for every reader. @param {string | number} when */
export function moment(when) {
  const date = typeof when === "number" ? new Date(1000 * when) : new Date(when);
  return Number.isNaN(date.getTime()) ? DASH : `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A number with its unit: plural(2, "look") -> "2 looks". @param {number} value @param {string} unit */
export function plural(value, unit, units = `${unit}s`) {
  return `${count(value)} ${value === 1 ? unit : units}`;
}

/** The message of an error. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** One line of foreign text: odd characters by their code, cut in the middle if too long. @param {unknown} text */
export function plain(text, longest = 200) {
  const shown = String(text).replace(ODD, coded);
  if (shown.length <= longest) return shown;
  const tail = Math.floor((longest - 1) / 3);
  return `${shown.slice(0, longest - 1 - tail)}…${shown.slice(shown.length - tail)}`;
}

/**
 * A foreign name, whose direction of writing cannot reach beyond it; it may break behind a slash.
 * @param {unknown} text @param {number} [longest]
 */
export function name(text, longest) {
  const parts = plain(text, longest).split(/(?<=\/)/);
  const breakable = parts.flatMap((part, index) => (index ? [h("wbr"), part] : part));
  return h("bdi", { class: "name" }, breakable);
}

/**
 * Foreign text over several lines as nodes, with every control or invisible character by its code.
 * @param {unknown} text @returns {Child[]}
 */
export function visible(text) {
  const nodes = [];
  let from = 0;
  const normal = String(text).replace(/\r\n/g, "\n");
  for (const match of normal.matchAll(ODD)) {
    if (match[0] === "\n" || match[0] === "\t") continue;
    if (match.index > from) nodes.push(normal.slice(from, match.index));
    nodes.push(h("span", { class: "odd" }, codeOf(match[0])));
    from = match.index + match[0].length;
  }
  if (from < normal.length) nodes.push(normal.slice(from));
  return nodes;
}

/** @param {string} character */
function coded(character) {
  return character === "\n" || character === "\t" ? " " : `⟨${codeOf(character)}⟩`;
}

/** @param {string} character */
function codeOf(character) {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
