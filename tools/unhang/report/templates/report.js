"use strict";
(function () {
  // The page works without this: it only filters, opens what a link points into, and opens everything for the printer.
  function reveal(element) {
    for (let part = element; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    const own = element && element.querySelector(":scope > details");
    if (own) own.open = true;
  }
  function follow() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target) { reveal(target); target.scrollIntoView({ block: "center" }); }
  }
  addEventListener("hashchange", follow);
  follow();
  addEventListener("beforeprint", function () { document.querySelectorAll("details").forEach(function (part) { part.open = true; }); });

  const input = document.getElementById("filter");
  if (!input) return;
  input.parentElement.hidden = false;
  const parts = Array.from(document.querySelectorAll("[data-f]"), function (part) { return { part: part, text: part.textContent.toLowerCase() }; });
  input.addEventListener("input", function () {
    const wanted = input.value.trim().toLowerCase();
    const shown = new Set();
    for (const { part, text } of parts) {
      if (!text.includes(wanted)) continue;
      shown.add(part);
      // A folded finding names gpu[001-008], a node's row names gpu003 and the findings on it.
      if (part.tagName === "TR") part.querySelectorAll("a.n").forEach(function (link) { shown.add(document.getElementById(link.hash.slice(1))); });
    }
    for (const { part } of parts) part.hidden = Boolean(wanted) && !shown.has(part);
    document.querySelectorAll("details.nodes").forEach(function (part) { if (wanted) part.open = Boolean(part.querySelector("tr[data-f]:not([hidden])")); });
    document.getElementById("no-match").hidden = !wanted || shown.size > 0;
  });
})();
