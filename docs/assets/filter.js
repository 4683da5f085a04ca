// A field above each long table or list: only the rows that contain every word stay visible.
document.addEventListener("DOMContentLoaded", () => {
  const MANY = 15;
  for (const block of document.querySelectorAll(".md-content table, .md-content article > ul")) {
    const rows = block.matches("ul") ? [...block.children] : [...block.querySelectorAll("tbody tr")];
    if (rows.length < MANY) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "row-filter";
    field.placeholder = `Filter ${rows.length} rows`;
    field.setAttribute("aria-label", field.placeholder);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    (block.closest(".md-typeset__scrollwrap") || block).before(field);
  }
});
