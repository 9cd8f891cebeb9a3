// One node where the eye is: a click on the map shows it beneath its panel, made of what the page already has of it.
function made(tag, words, className) {
  const element = document.createElement(tag);
  if (words !== undefined) element.textContent = words;
  if (className) element.className = className;
  return element;
}

// A line for each title: what is found on eight GPUs is found eight times.
function findingsOf(row) {
  const list = made("ul", undefined, "node-findings"), alike = new Map();
  const numbers = Array.from(row.found.keys()).sort((one, other) => KINDS.indexOf(model().cards.get(one).severity) - KINDS.indexOf(model().cards.get(other).severity));
  for (const number of numbers) {
    const { part, severity } = model().cards.get(number), title = part.querySelector("h3, h4").textContent;
    const same = alike.get(`${severity} ${title}`) || { severity, title, number, count: 0 };
    same.count += row.found.get(number);
    alike.set(`${severity} ${title}`, same);
  }
  for (const { severity, title, number, count } of alike.values()) {
    const item = made("li"), link = made("a", title);
    link.href = `#f${number}`;
    item.append(made("b", severity, `sev ${severity}`), " ", link, count > 1 ? ` × ${count}` : "");
    list.append(item);
  }
  return list;
}

function factsOf(row) {
  const heads = all("thead th", row.part.closest("table")).map((head) => head.textContent);
  const list = made("dl");
  Array.from(row.part.cells).forEach((cell, place) => {
    if (place < 3 || !cell.textContent.trim()) return;
    const pair = made("div");
    pair.append(made("dt", heads[place]), made("dd", cell.textContent));
    list.append(pair);
  });
  return list;
}

// Commands for one node; a name that a shell would read otherwise gets none.
function commandsOf(row) {
  const list = made("div", undefined, "node-commands");
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(row.name)) return list;
  const { program, report } = document.body.dataset;
  for (const words of [`${program} report ${report} --host ${row.name} -v`, `${program} history ${row.name}`]) {
    const line = made("p", undefined, "copied"), code = made("code", words);
    line.append(code);
    copied(code);
    list.append(line);
  }
  return list;
}

function nodeCard(row) {
  const card = made("section", undefined, `node-card ${row.kind}`), head = made("header"), close = made("button", "Close");
  card.id = "node";
  card.tabIndex = -1;
  card.setAttribute("aria-label", `Node ${row.name}`);
  close.type = "button";
  close.addEventListener("click", closeNode);
  head.append(row.part.querySelector(".glyph").cloneNode(true), made("h3", row.name), close);
  card.append(head);
  // The findings say what the row's state says; a node without any, or that was not read, has the state alone.
  const rest = row.found.size && row.kind !== "down" ? row.part.cells[1].querySelector("small") : row.part.cells[1];
  if (rest) card.append(made("p", rest.textContent));
  if (row.found.size) card.append(findingsOf(row));
  card.append(factsOf(row));
  const past = row.part.querySelector(".past ul");
  if (past) card.append(made("p", "What changed, the newest first", "fine"), past.cloneNode(true));
  card.append(commandsOf(row));
  const drawing = row.drawing && byId(row.drawing);
  if (drawing) card.append(drawing.querySelector(".drawings").cloneNode(true));
  return card;
}

function closeNode() {
  const card = byId("node");
  if (!card) return;
  const cell = card.shownFor;
  card.remove();
  cell.classList.remove("chosen");
  cell.focus({ preventScroll: true });
  history.replaceState(null, "", location.pathname + location.search);
}

// The last of the panels that stand side by side with this one.
function endOfRow(panel) {
  let last = panel;
  for (let next = panel.nextElementSibling; next && next.offsetTop === panel.offsetTop && next.classList.contains("panel"); next = next.nextElementSibling) last = next;
  return last;
}

function showNode(row) {
  const before = byId("node");
  if (before) { before.shownFor.classList.remove("chosen"); before.remove(); }
  const card = nodeCard(row);
  card.shownFor = row.cell;
  row.cell.classList.add("chosen");
  endOfRow(row.cell.closest(".panel")).after(card);
  card.querySelector("header").scrollIntoView({ block: "nearest" });
}

addEventListener("keydown", (event) => { if (event.key === "Escape" && byId("node") && event.target !== input) closeNode(); });
