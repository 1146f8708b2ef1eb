"use strict";
// Asks for all studies, shows those that are searched for, and draws the chosen ones beside each other.
const SECONDS = 2;  // until it asks again after an error
const NONE = document.getElementById("comparison").innerHTML;
let rows = [];
let chosen = null;  // ids; null until the server has proposed some
let known = "";     // the version of the comparison that is drawn
let lines = [];     // ids of the studies that have a line in it
let key = "created_at";
let isDescending = true;
let timer = 0;
let isAsking = false;

function cell(row, content, note) {
  const place = row.insertCell();
  place.append(content);
  if (note) {
    const small = document.createElement("small");
    small.textContent = note;
    place.append(small);
  }
  return place;
}

function lineOf(id) {
  const line = document.createElement("span");
  line.className = "line";
  const { color, style } = hptuneFigures.lineStyle(lines.indexOf(id));
  [line.style.borderColor, line.style.borderTopStyle] = [color, style];
  return line;
}

function shownRow(study) {
  const row = document.createElement("tr");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = chosen !== null && chosen.includes(study.id);
  box.disabled = Boolean(study.problem);
  box.dataset.study = study.id;
  box.setAttribute("aria-label", "Compare " + study.name);
  cell(row, box);
  if (study.problem) {
    cell(row, study.name);
    cell(row, study.state).className = "state " + study.state;
    const problem = cell(row, study.problem);
    problem.colSpan = 5;
    problem.className = "problem";
    return row;
  }
  const link = document.createElement("a");
  link.href = "study/" + study.id + "/";
  link.textContent = study.name;
  const name = cell(row, link, (study.tags || []).map(each => "#" + each).join(" "));
  if (lines.includes(study.id)) name.prepend(lineOf(study.id));
  cell(row, study.state, study.search).className = "state " + study.state.replace("master ", "");
  const place = cell(row, study.trials);
  if (study.of) {
    const bar = document.createElement("progress");
    bar.max = study.of;
    bar.value = study.ended;
    bar.setAttribute("aria-label", "trials that ended");
    place.append(bar);
  }
  cell(row, study.best || "–", study.goal);
  cell(row, study.hours || "–");
  cell(row, study.who, study.where);
  cell(row, study.started);
  return row;
}

function compare(one, other) {
  const [a, b] = [one[key], other[key]];
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;  // without a value last in both orders
  if (b === null || b === undefined) return -1;
  return (a < b ? -1 : 1) * (isDescending ? -1 : 1);
}

function showRows() {
  const words = document.getElementById("find").value.toLowerCase().split(/\s+/);
  const texts = each => Object.values(each).flat().join(" ").toLowerCase();
  const found = rows.filter(each => words.every(word => texts(each).includes(word)));
  const focus = document.activeElement;
  const [study, href] = [focus.dataset.study, focus.getAttribute("href")];
  document.getElementById("rows").replaceChildren(...found.sort(compare).map(shownRow));
  const again = study ? `[data-study="${study}"]` : href ? `#rows a[href="${href}"]` : "";
  if (again) document.querySelector(again)?.focus();
  for (const head of document.querySelectorAll("#studies th[data-key]")) {
    const order = isDescending ? "descending" : "ascending";
    head.setAttribute("aria-sort", head.dataset.key === key ? order : "none");
  }
}

function showComparison(found) {
  const place = document.getElementById("comparison");
  const fresh = document.createElement("template");
  fresh.innerHTML = found.html;
  if (found.html) place.replaceChildren(...fresh.content.firstElementChild.children);
  else place.innerHTML = NONE;
  lines = found.lines;
  const first = place.querySelector("table");
  lines.forEach((id, i) => {
    const row = first.tBodies[0].rows[i];
    row.cells[0].prepend(lineOf(id));
    for (const link of row.querySelectorAll("a")) link.href = `study/${id}/${link.hash}`;
  });
  drawFigures();
}

function drawFigures() {
  for (const place of document.querySelectorAll("#comparison [data-figure]")) hptuneFigures.draw(place, null, {});
}

async function update() {
  const held = document.querySelector("#comparison:hover, #comparison:focus-within") && known !== "asked";
  const body = JSON.stringify({ chosen, known });
  const answer = await fetch("state", { method: "POST", headers: { "X-Hptune": "1" }, body });
  if (!answer.ok) throw new Error(await answer.text());
  const state = await answer.json();
  document.getElementById("head").textContent = state.head;
  document.getElementById("live").textContent = "";
  rows = state.rows;
  if (chosen === null && state.chosen !== null) {
    chosen = state.chosen;
    known = "asked";
    state.seconds = 0;
  } else if (state.comparison && !held) {
    known = state.comparison.version;
    showComparison(state.comparison);
  }
  // What is pressed or selected stays: a box that is replaced meanwhile gets no click.
  const table = document.getElementById("rows"), selection = document.getSelection();
  const isSelected = !selection.isCollapsed && selection.containsNode(table, true);
  if (!isSelected && !table.matches(":active")) showRows();
  return state.seconds;
}

async function follow() {
  clearTimeout(timer);
  if (isAsking) return;
  isAsking = true;
  let seconds = SECONDS;
  try {
    seconds = await update();
  } catch (error) {
    const words = error instanceof TypeError ? "hptune dashboard does not answer" : error.message;
    document.getElementById("live").textContent = "Not up to date: " + words;
  }
  isAsking = false;
  timer = setTimeout(follow, 1000 * seconds);
}

for (const head of document.querySelectorAll("#studies th[data-key]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  button.addEventListener("click", () => {
    isDescending = key === head.dataset.key ? !isDescending : head.dataset.key !== "name";
    key = head.dataset.key;
    showRows();
  });
  head.replaceChildren(button);
}
document.getElementById("find").addEventListener("input", showRows);
document.getElementById("rows").addEventListener("change", event => {
  const study = event.target.dataset.study;
  chosen = (chosen || []).filter(each => each !== study);
  if (event.target.checked) chosen.push(study);
  known = "asked";
  follow();
});
addEventListener("resize", drawFigures);
follow();
