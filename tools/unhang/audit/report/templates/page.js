// Opens what a link leads into, copies commands, and opens everything for the printer.
function reveal(element) {
  for (let part = element; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  const own = element.querySelector(":scope > details");
  if (own) own.open = true;
}
function follow() {
  const target = location.hash.length > 1 && byId(location.hash.slice(1));
  if (!target) return undefined;
  const row = target.dataset.k && model().rows.find((one) => one.part === target);
  if (row) return showNode(row);
  reveal(target);
  return target.scrollIntoView({ block: "center" });
}
// On a phone a drawing is opened by who wants it.
if (matchMedia("(max-width: 600px)").matches) for (const part of all(".joined > details")) part.open = false;
addEventListener("hashchange", follow);
// The address then names the node, and the eye stays on the map.
byId("fleet").addEventListener("click", (event) => {
  const cell = event.target.closest("a[href^='#n']");
  if (!cell || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.replaceState(null, "", cell.getAttribute("href"));
  follow();
});
follow();
addEventListener("beforeprint", () => all("details").forEach((part) => { part.open = true; }));
