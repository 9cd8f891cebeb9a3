"use strict";
// What the page shows, read from the page itself: nodes are rows of the tables, findings are cards. The page works without script.
const KINDS = ["critical", "error", "warning", "info", "down", "partly", "unknown", "cpu", "ok", "healthy"];
const HEALTHY = ["unknown", "ok"]; // nothing above info was found on them
const MOST_SUMMARISED = 12; // causes on the printed summary: the style has the same number
const byId = (id) => document.getElementById(id);
const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));
const counted = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;

let known = null;
function model() {
  if (known) return known;
  const cells = new Map(all("#fleet a[href^='#n']").map((cell) => [cell.getAttribute("href").slice(1), cell]));
  const rows = all("tr[data-k]").map((part) => ({
    part, cell: cells.get(part.id), name: part.cells[0].textContent, kind: part.dataset.k, drawing: part.dataset.t, text: part.textContent.toLowerCase(),
    found: new Map(part.dataset.n.split(" ").filter(Boolean).map((pair) => pair.split("x").map(Number)).map(([number, count]) => [number, count || 1])),
  }));
  const cards = new Map(all("article[data-f]").map((part) => {
    const nested = all("article", part).map((inner) => inner.textContent);
    const text = nested.reduce((left, inner) => left.replace(inner, () => ""), part.textContent).toLowerCase();
    const cause = part.closest("[data-c]"); // its harm is that of the worst of its findings
    return [Number(part.id.slice(1)), { part, cause, harm: cause.dataset.c, severity: part.dataset.s, wide: Number(part.dataset.w), text, rows: [] }];
  }));
  for (const row of rows) for (const number of row.found.keys()) cards.get(number).rows.push(row);
  const others = all("[data-f]").filter((part) => (part.tagName === "TR" && !part.dataset.k) || part.matches("details.smoke")).map((part) => ({ part, text: part.textContent.toLowerCase() }));
  known = { rows, cards, others, drawings: all("figure.joined"), panels: all(".panel") };
  return known;
}

// gpu[001-003,7],login1 as ranges: a host is asked for, none is made, so that a range of a billion costs nothing.
function nodeSet(text) {
  const parts = text.match(/(?:\[[^\]]*\]|[^,[\]])+/g) || [];
  return parts.map((part) => part.split(/\[([^\]]*)\]/).map((piece, place) => (place % 2 ? piece.split(",").map((range) => range.split("-")) : piece)));
}
function inPattern(pieces, host) {
  let at = 0;
  for (let place = 0; place < pieces.length; place += 1) {
    const piece = pieces[place];
    if (typeof piece === "string") {
      if (!host.startsWith(piece, at)) return false;
      at += piece.length;
      continue;
    }
    const digits = (/^\d+/.exec(host.slice(at)) || [""])[0];
    if (!digits || !piece.some(([low, high]) => (high === undefined ? digits === low : digits.length >= low.length && +digits >= +low && +digits <= +high))) return false;
    at += digits.length;
  }
  return at === host.length;
}
const inSet = (set, host) => set.some((pieces) => inPattern(pieces, host));
