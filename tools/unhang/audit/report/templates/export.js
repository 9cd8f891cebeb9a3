// What is shown, as CSV and JSON, and commands for the clipboard. Cells that a spreadsheet would take for a formula begin with an apostrophe.
function shownNow() {
  const { rows, cards } = model();
  const visible = chosen || { rows: new Set(rows), cards: new Set(cards.keys()) };
  const own = (card, selector) => (card.part.querySelector(selector) || { textContent: "" }).textContent.trim();
  const findings = Array.from(visible.cards, (number) => {
    const card = cards.get(number);
    return {
      number, severity: card.severity, rule: own(card, ".rule code"), title: own(card, "h3, h4"), nodes: card.rows.filter((row) => visible.rows.has(row)).map((row) => row.name),
      where: all(":scope > code", card.part.querySelector("dd.where")).map((place) => place.textContent), found: own(card, "dd.found"), expected: own(card, "dd.expected"), do: own(card, "dd.do"),
    };
  }).sort((one, other) => one.number - other.number);
  const nodes = rows.filter((row) => visible.rows.has(row)).map((row) => {
    const heads = all("thead th", row.part.closest("table")).map((head) => head.textContent.toLowerCase());
    const cells = Object.fromEntries(Array.from(row.part.cells, (cell, place) => [heads[place], cell.textContent.trim()]));
    return { ...cells, findings: Array.from(row.found.keys()).filter((number) => visible.cards.has(number)) };
  });
  return { run: document.body.dataset.run, asked: { q: input.value.trim(), show: Array.from(pressed) }, headline: headline.textContent, findings, nodes };
}

function asCsv(chosen) {
  const cell = (value) => `"${(/^[=+\-@\t\r]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
  const lines = [["severity", "host", "rule", "title", "where", "expected", "found", "do"]];
  for (const one of chosen.findings) {
    for (const host of one.nodes.length ? one.nodes : [""]) lines.push([one.severity, host, one.rule, one.title, one.where.join("; "), one.expected, one.found, one.do]);
  }
  return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

function offer(name, type, text) {
  const link = made("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
byId("csv").addEventListener("click", () => offer("findings.csv", "text/csv", asCsv(shownNow())));
byId("json").addEventListener("click", () => offer("shown.json", "application/json", JSON.stringify(shownNow(), null, 1)));

async function copy(code, button) {
  getSelection().selectAllChildren(code);
  const done = navigator.clipboard ? await navigator.clipboard.writeText(code.textContent).then(() => true, () => document.execCommand("copy")) : document.execCommand("copy");
  button.textContent = done ? "Copied" : "Press Ctrl-C";
}
function copied(code) {
  const button = made("button", "Copy", "copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy ${code.textContent.slice(0, 80)}`);
  button.addEventListener("click", () => copy(code, button));
  code.after(button);
}
all(".copied > code").forEach(copied);
