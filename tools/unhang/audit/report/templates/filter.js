// The filter: headline, counters, map, cards, drawings and tables move together; what is asked for stands in the address.
const input = byId("filter"), headline = byId("headline").querySelector("span");
const sign = byId("headline").querySelector("use"), verdict = document.querySelector(".verdict");
const wholeHeadline = [headline.textContent, sign.getAttribute("href").slice(3)];
const pressed = new Set();

// The rows that a word names as a host or node set; empty when it names none.
function named(word, rows) {
  if (word.includes("[")) {
    const set = nodeSet(word);
    return rows.filter((row) => inSet(set, row.name.toLowerCase()));
  }
  const exact = rows.filter((row) => row.name.toLowerCase() === word || row.name.toLowerCase().split(".")[0] === word);
  return exact.length ? exact : rows.filter((row) => row.name.toLowerCase().startsWith(word));
}

function selectedBy(word, { rows, cards }) {
  const hosts = named(word, rows);
  if (hosts.length) return { hosts, rows: new Set(hosts), cards: new Set(hosts.flatMap((row) => Array.from(row.found.keys()))) };
  const numbers = new Set(Array.from(cards.keys()).filter((number) => cards.get(number).text.includes(word)));
  const told = new Set(rows.filter((row) => row.text.includes(word)));
  for (const number of Array.from(numbers)) cards.get(number).rows.forEach((row) => told.add(row));
  for (const row of rows) if (!numbers.size && told.has(row)) for (const number of row.found.keys()) numbers.add(number);
  return { hosts: [], rows: told, cards: numbers };
}

// words: hosts and node sets, each on its own, and what else was typed as one phrase, in lower case; kinds: severities and states of nodes, none for all.
function selection(words, kinds) {
  const { rows, cards } = model();
  let shownRows = new Set(rows), shownCards = new Set(cards.keys()), hosts = null;
  for (const one of words.map((word) => selectedBy(word, model()))) {
    shownRows = new Set(Array.from(shownRows).filter((row) => one.rows.has(row)));
    shownCards = new Set(Array.from(shownCards).filter((number) => one.cards.has(number)));
    if (one.hosts.length) hosts = shownRows;
  }
  if (kinds.size) shownCards = new Set(Array.from(shownCards).filter((number) => kinds.has(cards.get(number).harm)));
  if (words.length) shownCards = new Set(Array.from(shownCards).filter((number) => !cards.get(number).rows.length || cards.get(number).rows.some((row) => shownRows.has(row))));
  const stands = (row) => kinds.has(row.kind) || (kinds.has("healthy") && HEALTHY.includes(row.kind));
  if (kinds.size) shownRows = new Set(Array.from(shownRows).filter((row) => stands(row) || Array.from(row.found.keys()).some((number) => shownCards.has(number))));
  if (["down", "cpu", "partly", "unknown", "healthy"].some((kind) => kinds.has(kind))) for (const row of shownRows) if (stands(row)) for (const number of row.found.keys()) shownCards.add(number);
  return { rows: shownRows, cards: shownCards, hosts };
}

// Causes of what is shown, by the worst that is shown of each. blamed: nodes with more than remarks.
function sums({ rows, cards }) {
  const worst = new Map(), blamed = new Set();
  for (const number of cards) {
    const card = model().cards.get(number), on = card.rows.filter((row) => rows.has(row));
    if (card.rows.length && !on.length) continue;
    if (card.severity !== "info") on.forEach((row) => blamed.add(row));
    const before = worst.get(card.cause);
    if (before === undefined || KINDS.indexOf(card.severity) < KINDS.indexOf(before)) worst.set(card.cause, card.severity);
  }
  const bySeverity = {};
  for (const severity of worst.values()) bySeverity[severity] = (bySeverity[severity] || 0) + 1;
  return { bySeverity, blamed, causes: worst.size };
}

// The headline for what is shown, and the sign beside it: the worst of what is shown.
function told(chosen) {
  const { bySeverity, blamed } = sums(chosen);
  const { info: remarks = 0, ...faults } = bySeverity;
  const worst = KINDS.find((kind) => faults[kind]);
  const names = Array.from(chosen.rows, (row) => row.name);
  const where = names.length && names.length <= 3 ? names.join(", ") : counted(names.length, "node");
  if (worst) {
    const lesser = Object.values(faults).reduce((sum, count) => sum + count, 0) - faults[worst];
    const things = counted(faults[worst], `${worst} cause`) + (lesser ? ` and ${lesser.toLocaleString("en")} lesser` : "");
    return [`${things} on ${names.length <= 3 ? where : `${blamed.size.toLocaleString("en")} of ${where}`}`, worst];
  }
  if (!names.length && !remarks) return ["Nothing on this page matches", "unknown"];
  if (Array.from(chosen.rows).every((row) => HEALTHY.includes(row.kind))) return [`${where} healthy${remarks ? `, ${counted(remarks, "remark")}` : ""}`, "ok"];
  return remarks ? [`${counted(remarks, "remark")} on ${where}`, "info"] : [`Nothing found on ${where}`, "down"];
}

function show(chosen, words) {
  const { rows, cards, others, drawings, panels } = model();
  for (const row of rows) {
    row.part.hidden = !chosen.rows.has(row);
    if (row.cell) row.cell.classList.toggle("out", row.part.hidden);
  }
  for (const [number, card] of cards) card.part.hidden = !chosen.cards.has(number);
  for (const [number, card] of cards) {
    const outer = card.part.parentElement.closest("article");
    if (outer && chosen.cards.has(number)) outer.hidden = false;
  }
  const drawn = new Set(Array.from(chosen.rows, (row) => row.drawing));
  for (const part of drawings) part.hidden = !drawn.has(part.id);
  const lists = chosen.hosts && Array.from(chosen.hosts, (row) => row.name.toLowerCase());
  for (const { part, text } of others) part.hidden = !words.every((word) => text.includes(word)) && !(lists && all("code", part).some((code) => hostsIn(code.textContent, lists)));
  for (const part of all("details.nodes")) part.hidden = !part.querySelector("tr[data-k]:not([hidden])");
  for (const part of panels) part.classList.toggle("out", !part.querySelector("a:not(.out)"));
  return drawn.size;
}
function hostsIn(text, hosts) {
  const set = nodeSet(text.toLowerCase().split(" ")[0]);
  return hosts.some((host) => inSet(set, host));
}

function wanted() {
  const words = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const kinds = new Set([...pressed, ...words.filter((word) => KINDS.slice(0, 4).includes(word))]);
  const asked = words.filter((word) => !kinds.has(word)), isHost = (word) => named(word, model().rows).length > 0;
  const phrase = asked.filter((word) => !isHost(word)).join(" ");
  return { words: [...asked.filter(isHost), phrase].filter(Boolean), kinds };
}

// The printed summary has the causes that are shown.
const summaryMore = byId("summary-more"), wholeMore = Array.from(summaryMore.childNodes);
function summarise(now, active) {
  const lines = all(".summary tr[data-card]");
  for (const line of lines) line.hidden = byId(`f${line.dataset.card}`).hidden;
  const more = lines.filter((line) => !line.hidden).length - MOST_SUMMARISED;
  summaryMore.replaceChildren(...(active ? [more > 0 ? `and ${counted(more, "more cause")}` : ""] : wholeMore));
}

let chosen = null; // what is shown; null: everything
function refilter() {
  const { words, kinds } = wanted(), { rows, cards, drawings } = model();
  const active = words.length > 0 || kinds.size > 0;
  const now = active ? selection(words, kinds) : { rows: new Set(rows), cards: new Set(cards.keys()), hosts: null };
  show(now, words);
  chosen = active ? now : null;
  const [line, worst] = active ? told(now) : wholeHeadline;
  headline.textContent = line;
  sign.setAttribute("href", `#g-${worst}`);
  verdict.className = `verdict ${worst}`;
  byId("no-match").hidden = !active || now.cards.size > 0;
  byId("no-match").textContent = `${line}.`;
  byId("findings-title").hidden = active && now.cards.size > 0 && !document.querySelector(".findings > article:not([hidden])");
  for (const part of all(".remarks")) part.hidden = !part.querySelector("article:not([hidden])");
  const left = [`${sums(now).causes} of ${counted(new Set(Array.from(cards.values(), (card) => card.cause)).size, "cause")}`, `${now.rows.size} of ${counted(rows.length, "node")}`];
  if (drawings.length) left.push(`${drawings.filter((part) => !part.hidden).length} of ${counted(drawings.length, "drawing")}`);
  summarise(now, active);
  byId("left").textContent = active ? `Left: ${left.join(", ")}` : "";
  byId("clear").hidden = !active;
  for (const button of all(".counts button")) button.setAttribute("aria-pressed", String(kinds.has(button.dataset.k)));
  for (const part of all("details.nodes")) if (active && now.rows.size <= 200) part.open = !part.hidden;
}

// In the query, so that the fragment stays free for what a link points to.
function remember() {
  const address = new URL(location.href);
  for (const [key, value] of [["q", input.value.trim()], ["show", Array.from(pressed).join(",")]]) {
    if (value) address.searchParams.set(key, value);
    else address.searchParams.delete(key);
  }
  history.replaceState(null, "", address);
}
function recall() {
  const asked = new URLSearchParams(location.search);
  input.value = asked.get("q") || "";
  pressed.clear();
  for (const kind of (asked.get("show") || "").split(",")) if (KINDS.includes(kind)) pressed.add(kind);
  if (input.value || pressed.size) refilter();
}

document.querySelector(".tools").hidden = false;
input.addEventListener("input", () => { refilter(); remember(); });
byId("clear").addEventListener("click", () => { input.value = ""; pressed.clear(); refilter(); remember(); input.focus(); });
for (const button of all(".counts button")) {
  button.disabled = false;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    if (!pressed.delete(button.dataset.k)) pressed.add(button.dataset.k);
    refilter();
    remember();
  });
}
addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); input.focus(); input.select(); }
  if (event.key === "Escape" && event.target === input) { input.value = ""; refilter(); remember(); }
});
recall();
