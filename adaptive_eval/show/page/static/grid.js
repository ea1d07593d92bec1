// Moving about in a grid of cells by the arrow keys, with one stop for the Tab key.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Focuses the neighbour of a table cell that the key points to; cells that cannot be focused are passed over. */
export function moveInGrid(cell, event) {
  const step = stepOf(event);
  if (step === null) return;
  event.preventDefault();
  const row = cell.parentElement;
  let [down, across] = [row.rowIndex, cell.cellIndex];
  const rows = cell.closest("table").rows;
  do {
    down += step[0];
    across += step[1];
    const found = rows[down]?.cells[across];
    if (found === undefined) return;
    if (found.hasAttribute("tabindex")) {
      found.focus();
      return;
    }
  } while (true);
}

/** The step [down, across] of an arrow key; null for any other key. */
export function stepOf(event) {
  return event.ctrlKey || event.metaKey || event.altKey ? null : (STEPS[event.key] ?? null);
}
