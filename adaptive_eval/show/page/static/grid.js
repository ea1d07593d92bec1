// Moving about in a grid of cells by the arrow keys, with one stop for the Tab key.

/** @type {Record<string, [number, number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Focuses the neighbour of a table cell that the key points to; cells that cannot be focused are passed over.
 * @param {HTMLTableCellElement} cell @param {KeyboardEvent} event
 */
export function moveInGrid(cell, event) {
  const step = stepOf(event);
  if (step === null) return;
  event.preventDefault();
  const row = /** @type {HTMLTableRowElement} */ (cell.parentElement);
  let [down, across] = [row.rowIndex, cell.cellIndex];
  const { rows } = /** @type {HTMLTableElement} */ (cell.closest("table"));
  let found;
  do {
    down += step[0];
    across += step[1];
    found = rows[down]?.cells[across];
  } while (found && !found.hasAttribute("tabindex"));
  found?.focus();
}

/**
 * The step [down, across] of an arrow key; null for any other key.
 * @param {KeyboardEvent} event @returns {[number, number] | null}
 */
export function stepOf(event) {
  return event.ctrlKey || event.metaKey || event.altKey ? null : (STEPS[event.key] ?? null);
}
