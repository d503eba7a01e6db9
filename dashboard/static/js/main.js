// Starts what a page asks for: its chart, its live figures, its copy buttons. Everything works without it but these.

import { draw } from "./chart.js";
import { Live } from "./live.js";

const root = document.getElementById("main");
const charts = draw(root);

function redraw() {
  for (const { figure, chart } of charts) chart.update(JSON.parse(figure.dataset.chart));
}

if (root.hasAttribute("data-live")) {
  const live = new Live(root, () => {
    // A page that failed or was empty has no picture yet: the first good answer brings it.
    if (root.querySelectorAll("figure[data-chart] .chart").length !== charts.length) location.reload();
    else redraw();
  });
  window.addEventListener("pagehide", () => live.stop());
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const text = source.value ?? source.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    source.select ? source.select() : getSelection().setBaseAndExtent(source, 0, source, source.childNodes.length);
    document.execCommand("copy");
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
});

// The viewer's own zone is one press away; it is never taken without asking, because the address is the state.
const offer = document.querySelector("[data-zone-offer]");
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (offer && own && own !== offer.dataset.zoneOffer) {
  const address = new URL(location.href);
  address.searchParams.set("zone", own);
  offer.href = address;
  offer.textContent = `Show in ${own}`;
  offer.hidden = false;
}
