"use strict";
// Asks the server for what has changed, and redraws that alone.
(() => {
  const { element } = hptuneCharts;
  const by = id => document.getElementById(id);
  const known = {};   // versions, by section
  const seen = new Set();
  const SECONDS = 2;  // until it asks again after an error
  const METRIC_SECONDS = 5;  // between two requests for the curves of another metric
  const AT_ONCE = 3;  // sections out of sight that are asked for together
  const MOST = 1000000;  // characters of a log that are kept
  const AFTER = { "pause": "true true", "resume": "true false" };  // whether it runs, is paused, after an action
  const data = JSON.parse(by("data").textContent);
  let since = data.reading;
  let told = "";      // what the server answered to the last button
  let toldOf = null;  // whether the study ran and was paused then; a change outdates the answer
  let timer = 0;
  let isAsking = false;

  async function post(name, body) {
    let answer;
    try {
      answer = await fetch(name, { method: "POST", headers: { "X-Hptune": "1" }, body: JSON.stringify(body) });
    } catch {
      throw new Error("hptune dashboard does not answer; it has ended, or the connection is cut");
    }
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
  }

  // --- sections that can be seen -----------------------------------------------------------------

  const watcher = new IntersectionObserver(entries => {
    for (const each of entries) each.isIntersecting ? seen.add(each.target.id) : seen.delete(each.target.id);
    if (entries.some(each => each.isIntersecting && !known[each.target.id])) askSoon();
  }, { rootMargin: "100px" });

  // Sections that had nothing to show may have by now; of the others each is asked for once, so that
  // the page soon has those of the study alone.
  function unseen() {
    const all = [...document.querySelectorAll("main > section:not(#trial)")];
    const next = all.filter(each => !known[each.id]).slice(0, AT_ONCE);
    return [...all.filter(each => each.hidden), ...next].map(each => each.id);
  }

  // Trials that run, wait or are paused can be stopped.
  function addButtons(section) {
    for (const table of section.querySelectorAll("table")) {
      const head = table.querySelector("thead th");
      if (!head || head.textContent !== "trial") continue;
      head.after(element("th", { scope: "col" }, "action"));  // on a phone, the last columns are out of sight
      for (const row of table.querySelectorAll("tbody tr")) {
        const number = row.firstElementChild.textContent;
        row.insertCell(1).append(element("button", { type: "button", "data-trial": number, "aria-label": `Stop trial ${number}` }, "Stop"));
      }
    }
  }

  // A section whose button is pressed, or whose text is selected, waits: a button that is replaced
  // meanwhile gets no click.
  function isHeld(section) {
    return section.matches(":active") || hptunePage.isSelected(section);
  }

  function redraw(name, found) {
    const old = by(name), fresh = document.createElement("template");
    fresh.innerHTML = found.html || `<section id="${name}" hidden></section>`;
    const made = fresh.content.firstElementChild;
    if (name === "running") addButtons(made);
    // The places of figures stay: what they show is drawn from the data.
    const places = [...old.querySelectorAll(".figure[data-figure]")].filter(each => !each.parentElement.closest(".figure"));
    made.querySelectorAll("[data-figure]").forEach((place, index) => {
      if (places[index] && places[index].dataset.figure === place.dataset.figure) place.replaceWith(places[index]);
      else if (places[index]) hptunePage.forget(places[index].parentElement);
    });
    const isOpen = [...old.querySelectorAll(":scope > details")].map(each => each.open);
    made.querySelectorAll(":scope > details").forEach((each, index) => { each.open = isOpen[index] || false; });
    const tops = [...old.querySelectorAll(".scroll")].map(each => each.scrollTop);
    const trial = document.activeElement?.dataset?.trial;
    watcher.unobserve(old);
    old.replaceWith(made);
    made.querySelectorAll(".scroll").forEach((each, index) => { each.scrollTop = tops[index] || 0; });
    watcher.observe(made);
    hptunePage.watch(made);
    if (trial) made.querySelector(`button[data-trial="${trial}"]`)?.focus();
    const link = document.querySelector(`#bar a[href="#${name}"]`);
    if (link) link.hidden = !found.html;
  }

  // --- asking -------------------------------------------------------------------------------------

  async function update() {
    const before = told;
    const wanted = [...seen, ...unseen()].filter(name => by(name) && !(known[name] && isHeld(by(name))));
    const state = await (await post("state", { known, seen: wanted, since })).json();
    for (const [id, html] of [["head", state.head], ["tiles", state.tiles]]) {
      if (by(id).dataset.of !== html && !hptunePage.isSelected(by(id)) && !by(id).contains(document.activeElement)) {
        by(id).innerHTML = html;
        by(id).dataset.of = html;
      }
    }
    by("stop").hidden = !state.is_running;
    by("pause").hidden = !state.is_running || state.is_paused;
    by("resume-trials").hidden = !state.is_running || !state.is_paused;
    by("resume").hidden = state.is_running;
    document.querySelector("#resume code").textContent = state.resume;
    by("add").hidden = !state.is_running;
    if (told === before) {
      const of = `${state.is_running} ${state.is_paused}`;
      if (toldOf !== of && toldOf !== null) told = "";
      toldOf = of;
    }
    for (const [name, section] of Object.entries(state.sections)) {
      if (known[name] && isHeld(by(name))) continue;
      redraw(name, section);
      known[name] = section.version;
    }
    since = state.reading;
    if (state.data) {
      hptunePage.update(state.data.facts, state.data.trials);
      const shown = hptunePage.trialNow();
      if (state.data.trials.some(each => each.n === shown)) askCurves({ trial: shown });
      askMetric();
    }
    hptunePage.drawSeen();  // what waited under the pointer
    by("live").textContent = told;
    return state.seconds;
  }

  async function follow() {
    if (isAsking) return;
    isAsking = true;
    let seconds = SECONDS;
    try {
      seconds = await update();
    } catch (error) {
      by("live").textContent = "Not up to date: " + error.message;
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
      words = await (await post("act", body)).text();
      askSoon();
    } catch (error) {
      words = "Not done: " + error.message;
    }
    by(place).textContent = words;
    return words;
  }

  async function ask(body) {
    told = "Asking …";
    by("live").textContent = told;
    told = await act("live", body);
    toldOf = AFTER[body.action] ?? null;
  }

  // --- further curves, and logs --------------------------------------------------------------------

  async function askCurves(body) {
    try {
      hptunePage.addCurves(await (await post("curves", body)).json());
    } catch { /* the next answer of the server says what is wrong */ }
  }

  let askedMetric = 0;
  function askMetric() {
    const metric = hptunePage.metric();
    if (metric === data.metric || Date.now() - askedMetric < 1000 * METRIC_SECONDS) return;
    askedMetric = Date.now();
    askCurves({ metric });
  }

  async function followLog(trial) {
    const log = element("pre", { id: "log", tabindex: 0, "aria-label": "Log" }), said = element("span", { role: "status" });
    const box = element("input", { type: "checkbox", checked: true });
    by("trial-log").append(element("h3", {}, "Log"), element("label", {}, box, " Follow the end "), said, log);
    for (let end = 0; log.isConnected; await new Promise(done => setTimeout(done, 1000))) {
      try {
        const found = await (await post("log", { trial, start: end })).json();
        if (found.text && !hptunePage.isSelected(log)) {
          log.textContent = (log.textContent + found.text).slice(-MOST);
          if (box.checked) log.scrollTop = log.scrollHeight;
          end = found.end;
        }
        said.textContent = found.end ? "" : "The trial has written nothing yet.";
      } catch (error) {
        said.textContent = "Not up to date: " + error.message;
      }
    }
  }

  hptunePage.hooks.metric = () => { askedMetric = 0; askMetric(); };
  hptunePage.hooks.trial = number => { askCurves({ trial: number }); followLog(number); };

  // --- buttons --------------------------------------------------------------------------------------

  by("stop").addEventListener("click", () => {
    const words = "Stop the study? Its trials write a checkpoint; hptune resume continues it.";
    if (confirm(words)) ask({ action: "stop" });
  });
  by("pause").addEventListener("click", () => ask({ action: "pause" }));
  by("resume-trials").addEventListener("click", () => ask({ action: "resume" }));
  document.querySelector("main").addEventListener("click", event => {
    const number = event.target.dataset && event.target.dataset.trial;
    if (!number) return;
    if (confirm(`Stop trial ${number}? It does not run again.`)) ask({ action: "stop a trial", trial: Number(number) });
  });
  by("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.querySelector("#resume code").textContent);
    by("copy").textContent = "Copied";
  });
  by("add-form").addEventListener("submit", async event => {
    event.preventDefault();
    by("added").textContent = "Asking …";
    await act("added", { action: "enqueue", values: Object.fromEntries(new FormData(event.target)) });
  });
  for (const each of document.querySelectorAll("main > section:not(#trial)")) watcher.observe(each);
  if (hptunePage.trialNow() !== null) hptunePage.hooks.trial(hptunePage.trialNow());
  follow();
})();
