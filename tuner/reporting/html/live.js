"use strict";
// Asks the server for the sections that have changed, and redraws those only.
const known = {};
const SECONDS = 2;
let told = "";  // what the server answered to the button

function shownNow() {
  const button = document.querySelector("#switch input:checked");
  return button ? button.value : "";
}

// The trials of a table lead to their logs.
function linkLogs(element) {
  for (const table of element.querySelectorAll("table")) {
    const first = table.querySelector("thead th");
    if (!first || first.textContent !== "trial") continue;
    for (const cell of table.querySelectorAll("tbody td:first-child")) {
      const link = document.createElement("a");
      link.href = "log/" + cell.textContent;
      link.target = "_blank";
      link.title = "log of trial " + cell.textContent;
      link.textContent = cell.textContent;
      cell.replaceChildren(link);
    }
  }
}

async function redraw(name, panel, state) {
  const open = [...document.querySelectorAll("#" + name + " details")].some(each => each.open);
  const fresh = document.createElement("template");
  fresh.innerHTML = panel.html;
  const element = fresh.content.firstElementChild;
  linkLogs(element);
  for (const details of element.querySelectorAll("details")) details.open = open;
  const old = document.getElementById(name);
  for (const place of old ? old.querySelectorAll("[data-root-id]") : []) {
    const drawn = Bokeh.documents.find(each => each.roots().some(root => root.id === place.dataset.rootId));
    if (!drawn) continue;
    drawn.clear();
    Bokeh.documents.splice(Bokeh.documents.indexOf(drawn), 1);
  }
  if (old) old.replaceWith(element);
  else {
    const later = state.order.slice(state.order.indexOf(name) + 1).map(each => document.getElementById(each));
    document.querySelector("main").insertBefore(element, later.find(each => each) || null);
  }
  for (const item of panel.figures) await Bokeh.embed.embed_item(item);
}

async function update() {
  // A section under the pointer or with the focus waits, so that nobody loses what they look at.
  const held = name => {
    const element = document.getElementById(name);
    return element && (element.matches(":hover") || element.contains(document.activeElement)) && known[name];
  };
  const answer = await fetch("state", { method: "POST", headers: { "X-Hptune": "1" }, body: JSON.stringify(known) });
  if (!answer.ok) throw new Error(await answer.text());
  const state = await answer.json();
  document.querySelector("header p").innerHTML = state.head;
  document.getElementById("switch").hidden = !state.has_pruned;
  document.getElementById("stop").hidden = !state.is_running;
  for (const [name, panel] of Object.entries(state.panels)) {
    if (held(name)) continue;
    await redraw(name, panel, state);
    known[name] = panel.version;
  }
  for (const element of document.querySelectorAll("main > section")) {
    if (!state.order.includes(element.id)) element.remove();
  }
  document.querySelector("nav").innerHTML = state.links;
  show(shownNow());
  if (!state.is_running) told = "";
  document.getElementById("live").textContent = told;
  return state.seconds;
}

async function follow() {
  let seconds = SECONDS;
  try {
    seconds = await update();
  } catch (error) {
    document.getElementById("live").textContent = "Not up to date: " + error.message;
  }
  setTimeout(follow, 1000 * (seconds || SECONDS));
}

document.getElementById("stop").addEventListener("click", async () => {
  if (!confirm("Stop the study? Its trials write a checkpoint; hptune resume continues it.")) return;
  try {
    const answer = await fetch("stop", { method: "POST", headers: { "X-Hptune": "1" } });
    told = await answer.text();
  } catch (error) {
    told = "The study was not stopped: " + error.message;
  }
  document.getElementById("live").textContent = told;
});
follow();
