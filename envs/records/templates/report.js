"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const details = new Map(Array.from(document.querySelectorAll("details.rollout"), (d) => [d.dataset.number, d]));
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value ?? cell.textContent.trim();
  };
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    head.classList.add("sortable");
    head.addEventListener("click", () => {
      const down = head.classList.contains("up");
      for (const other of table.tHead.rows[0].cells) other.classList.remove("up", "down");
      head.classList.add(down ? "down" : "up");
      const number = head.dataset.kind === "number";
      rows.sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        const order = number ? Number(x) - Number(y) : x.localeCompare(y);
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
  const text = document.getElementById("f-text");
  const selects = ["band", "solved", "stop"].map((name) => [name, document.getElementById("f-" + name)]);
  const count = document.getElementById("f-count");
  const filter = () => {
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = row.dataset.text.toLowerCase().includes(wanted)
        && selects.every(([name, select]) => !select.value || row.dataset[name] === select.value);
      row.hidden = !fits;
      shown += fits;
      const detail = details.get(row.dataset.number);
      if (detail) detail.hidden = !fits;
    }
    count.value = shown + " of " + rows.length;
  };
  text.addEventListener("input", filter);
  for (const [, select] of selects) select.addEventListener("change", filter);
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    const detail = target && target.closest("details.rollout");
    if (detail) {
      detail.open = true;
      detail.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  document.querySelector(".filters").hidden = false;
  filter();
  reveal();
})();
