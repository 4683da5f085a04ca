"use strict";
// Theme: follows the system until the button is pressed.
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Tables: click a heading to sort, type to filter, tick the box to see highlighted rows only.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const tools = document.querySelector(`[data-for="${CSS.escape(table.id)}"]`);
  const search = tools?.querySelector("input[type=search]");
  const highlightedOnly = tools?.querySelector("input[type=checkbox]");
  const count = tools?.querySelector("output");
  const show = () => {
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = (highlightedOnly?.checked && !row.classList.contains("highlighted")) || !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    if (count) count.value = `${shown} of ${rows.length}`;
  };
  search?.addEventListener("input", show);
  highlightedOnly?.addEventListener("change", show);
  table.tHead.addEventListener("click", (event) => {
    const heading = event.target.closest("th");
    if (!heading) return;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const column = heading.cellIndex;
    // A cell with a number and its unit has the plain number in data-sort.
    const bare = (row) => row.cells[column].dataset.sort;
    const order = (a, b) => (bare(a) !== undefined && bare(b) !== undefined ? bare(a) - bare(b)
      : a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true }));
    rows.sort((a, b) => order(a, b) * (down ? -1 : 1));
    body.append(...rows);
  });
  show();
}
