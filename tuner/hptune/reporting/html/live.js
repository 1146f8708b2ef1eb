"use strict";
// Asks the server for what has changed in the sections that can be seen, and redraws that alone.
const known = {};   // versions, by section, and by section + " table"
const seen = new Set();
const SECONDS = 2;  // until it asks again after an error
let told = "";      // what the server answered to the last button
let toldOf = null;  // whether the study ran and was paused then; a change outdates the answer
const AFTER = { "pause": "true true", "go on": "true false" };  // the same, after an action
let timer = 0;
let isAsking = false;

async function post(name, body) {
  try {
    return await fetch(name, { method: "POST", headers: { "X-Hptune": "1" }, body: JSON.stringify(body) });
  } catch {
    throw new Error("hptune dashboard does not answer; it has ended, or the connection is cut");
  }
}

function shownNow() {
  const button = document.querySelector("#switch input:checked");
  return button ? button.value : "";
}

// --- what can be seen ---------------------------------------------------------------------------

const watcher = new IntersectionObserver(entries => {
  for (const each of entries) {
    if (each.isIntersecting) seen.add(each.target.id);
    else seen.delete(each.target.id);
  }
  if (entries.some(each => each.isIntersecting && !known[each.target.id])) askSoon();
}, { rootMargin: "100px" });

function openNow() {
  return [...document.querySelectorAll("main details[open]")].map(each => each.closest("section").id);
}

// --- drawing ------------------------------------------------------------------------------------

// The trials of a table lead to their logs, and those that run can be stopped.
function addLinks(element, isRunning) {
  for (const table of element.querySelectorAll("table")) {
    const first = table.querySelector("thead th");
    if (!first || first.textContent !== "trial") continue;
    if (isRunning) {
      const head = document.createElement("th");
      head.scope = "col";
      head.textContent = "action";
      first.after(head);  // on a phone, the last columns are out of sight
    }
    for (const row of table.querySelectorAll("tbody tr")) {
      const number = row.firstElementChild.textContent;
      const link = document.createElement("a");
      link.href = "log#" + number;
      link.target = "_blank";
      link.title = "log of trial " + number;
      link.textContent = number;
      row.firstElementChild.replaceChildren(link);
      if (!isRunning) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Stop";
      button.dataset.trial = number;
      button.setAttribute("aria-label", "Stop trial " + number);
      row.insertCell(1).append(button);
    }
  }
}

function forget(element) {
  for (const place of element.querySelectorAll("[data-root-id]")) {
    const drawn = Bokeh.documents.find(each => each.roots().some(root => root.id === place.dataset.rootId));
    if (!drawn) continue;
    drawn.clear();
    Bokeh.documents.splice(Bokeh.documents.indexOf(drawn), 1);
  }
}

function scrolls(element) {
  return [...element.querySelectorAll(".scroll")].map(each => each.scrollTop);
}

function scrollAgain(element, tops) {
  element.querySelectorAll(".scroll").forEach((each, i) => { each.scrollTop = tops[i] || 0; });
}

async function redraw(name, section) {
  const old = document.getElementById(name);
  const tops = scrolls(old);
  const isOpen = old.querySelector("details[open]") !== null;
  const trial = document.activeElement && document.activeElement.dataset.trial;
  const fresh = document.createElement("template");
  fresh.innerHTML = section.html || `<section id="${name}" hidden></section>`;
  const element = fresh.content.firstElementChild;
  addLinks(element, name === "running");
  for (const details of element.querySelectorAll("details")) {
    details.open = isOpen;
    const table = old.querySelector("details .table");
    const place = table || document.createElement("div");
    place.className = "table";
    details.append(place);
    details.addEventListener("toggle", () => { if (details.open) askSoon(); });
  }
  forget(old);
  watcher.unobserve(old);
  old.replaceWith(element);
  scrollAgain(element, tops);
  watcher.observe(element);
  if (trial) {
    const button = element.querySelector(`button[data-trial="${trial}"]`);
    if (button) button.focus();
  }
  for (const item of section.figures) await Bokeh.embed.embed_item(item);
}

// Text that is selected stays, so that it can be copied.
function isSelected(element) {
  const selection = document.getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

// A figure under the pointer or with the focus waits, so that nobody loses what they look at. While
// a button is pressed, its section waits too: a button that is replaced meanwhile gets no click.
function isHeld(name) {
  const element = document.getElementById(name);
  if (!element || !known[name]) return false;
  if (element.matches(":active") || isSelected(element)) return true;
  if (!element.querySelector("[data-root-id]")) return false;
  return element.matches(":hover") || element.contains(document.activeElement);
}

async function update() {
  const before = told;
  const wanted = [...seen].filter(name => !isHeld(name));
  const unfolded = openNow().filter(name => seen.has(name));  // also of a figure that waits
  const answer = await post("state", { known, seen: wanted, open: unfolded });
  if (!answer.ok) throw new Error(await answer.text());
  const state = await answer.json();
  const head = document.querySelector("header p");
  if (!isSelected(head)) head.innerHTML = state.head;
  document.getElementById("switch").hidden = !state.has_pruned;
  document.getElementById("stop").hidden = !state.is_running;
  document.getElementById("pause").hidden = !state.is_running || state.is_paused;
  document.getElementById("go-on").hidden = !state.is_running || !state.is_paused;
  document.getElementById("resume").hidden = state.is_running;
  document.getElementById("add").hidden = !state.is_running;
  if (told === before) {
    const of = `${state.is_running} ${state.is_paused}`;
    if (toldOf !== of && toldOf !== null) told = "";
    toldOf = of;
  }
  let isDrawn = false;
  for (const [name, section] of Object.entries(state.sections)) {
    if (isHeld(name)) continue;
    await redraw(name, section);
    known[name] = section.version;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (link) link.hidden = !section.html;
    isDrawn = true;
  }
  for (const [name, table] of Object.entries(state.tables)) {
    const place = document.querySelector("#" + name + " details .table");
    const isWatched = place && (place.matches(":hover") || isSelected(place));
    if (!place || isWatched && known[name + " table"]) continue;
    const tops = scrolls(place);
    place.innerHTML = table.html;
    scrollAgain(place, tops);
    addLinks(place, false);
    known[name + " table"] = table.version;
  }
  if (isDrawn) show(shownNow());
  document.getElementById("live").textContent = told;
  return state.seconds;
}

// --- asking -------------------------------------------------------------------------------------

async function follow() {
  if (isAsking) return;
  isAsking = true;
  let seconds = SECONDS;
  try {
    seconds = await update();
  } catch (error) {
    document.getElementById("live").textContent = "Not up to date: " + error.message;
  }
  isAsking = false;
  clearTimeout(timer);
  timer = setTimeout(follow, 1000 * seconds);
}

function askSoon() {
  clearTimeout(timer);
  timer = setTimeout(follow, 50);
}

async function act(place, body) {
  let words;
  try {
    const answer = await post("act", body);
    words = await answer.text();
    if (answer.ok) askSoon();
    else words = "Not done: " + words;
  } catch (error) {
    words = "Not done: " + error.message;
  }
  document.getElementById(place).textContent = words;
  return words;
}

async function ask(body) {
  told = "Asking …";
  document.getElementById("live").textContent = told;
  told = await act("live", body);
  toldOf = AFTER[body.action] ?? null;
}

document.getElementById("stop").addEventListener("click", () => {
  const words = "Stop the study? Its trials write a checkpoint; hptune resume continues it.";
  if (confirm(words)) ask({ action: "stop" });
});
document.getElementById("pause").addEventListener("click", () => ask({ action: "pause" }));
document.getElementById("go-on").addEventListener("click", () => ask({ action: "go on" }));
document.querySelector("main").addEventListener("click", event => {
  const number = event.target.dataset && event.target.dataset.trial;
  if (!number) return;
  if (confirm(`Stop trial ${number}? It does not run again.`)) {
    ask({ action: "stop a trial", trial: Number(number) });
  }
});
document.getElementById("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(document.querySelector("#resume code").textContent);
  document.getElementById("copy").textContent = "Copied";
});
document.getElementById("add-form").addEventListener("submit", async event => {
  event.preventDefault();
  const values = Object.fromEntries(new FormData(event.target));
  document.getElementById("added").textContent = "Asking …";
  await act("added", { action: "add trials", values });
});
for (const each of document.querySelectorAll("main > section")) watcher.observe(each);
follow();
