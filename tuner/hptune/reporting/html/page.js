"use strict";
// The page: what the reader chooses, figures that are drawn when they are seen, and one trial.
const hptunePage = (() => {
  const { element, words } = hptuneCharts;
  const { studyOf, firstChoice, isShown, isBrushed, brushText, pairs, axisOf } = hptuneTrials;
  const { duration, shown } = hptuneTable;
  const by = id => document.getElementById(id);
  const main = document.querySelector("main");
  const given = by("data").textContent;
  let study = given ? studyOf(JSON.parse(given)) : { trials: [], byNumber: new Map(), space: [], metrics: [], direction: {}, order: { all: [], complete: [] } };
  let chosen = null;
  const table = { compared: new Set(), sort: "", isDown: false };
  const hooks = { metric: () => {}, trial: () => {} };  // what the live page adds

  // --- figures ---------------------------------------------------------------------------------------

  const seen = new Set(), drawn = new Map();  // figures on the screen; what each was drawn of
  let version = 0;

  const watcher = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
    drawSeen();
  }, { rootMargin: "200px" });

  const widths = new ResizeObserver(entries => {
    for (const { target, contentRect } of entries) {
      if (drawn.has(target) && Math.abs(drawn.get(target).width - contentRect.width) > 1) drawn.delete(target);
    }
    drawSeen();
  });

  function figuresIn(place) {
    return [...place.querySelectorAll("[data-figure]")];
  }

  function watch(place) {
    for (const each of figuresIn(place)) {
      watcher.observe(each);
      widths.observe(each);
    }
  }

  function forget(place) {
    for (const each of figuresIn(place)) {
      watcher.unobserve(each);
      widths.unobserve(each);
      seen.delete(each);
      drawn.delete(each);
    }
  }

  // Draws what can be seen and is not up to date. What is under the pointer or has the focus waits,
  // unless the reader asked for the change.
  function drawSeen({ isAsked = false, isAll = false } = {}) {
    const wanted = isAll ? figuresIn(main) : seen;
    for (const place of wanted) {
      if (drawn.get(place)?.version === version || !place.isConnected) continue;
      const isHeld = place.matches(":hover") || place.contains(document.activeElement) || isSelected(place);
      if (drawn.has(place) && isHeld && !isAsked && !place.dataset.figure.includes("table")) continue;
      if (place.matches(":active")) continue;
      drawOne(place);
    }
  }

  function isSelected(place) {
    const selection = document.getSelection();
    return !selection.isCollapsed && selection.containsNode(place, true);
  }

  function drawOne(place) {
    const [kind, given] = JSON.parse(place.dataset.figure);
    const isDrawn = kind === "table" ? hptuneTable.draw(place, study, chosen, table, trialNow(), () => { drawOne(place); showTrial(); })
      : kind === "comparison" ? hptuneFigures.comparison(place, study, [...table.compared], chosen.metric)
        : kind === "curve" ? hptuneFigures.comparison(place, study, [trialNow()], given.metric, 210)
          : hptuneFigures.draw(place, study, chosen);
    if (kind === "table") watch(place);
    if (kind === "contour" && isDrawn) place.prepend(pairChoice());
    if (!isDrawn) place.replaceChildren(element("p", { class: "note" }, "Nothing to show for this choice."));
    drawn.set(place, { version, width: place.getBoundingClientRect().width });
    place.dataset.drawn = version;
  }

  // Marks the link to the first section that is on the screen below the choices.
  function markLink() {
    const first = [...main.querySelectorAll(":scope > section")].find(each => each.getBoundingClientRect().bottom > 150);
    for (const link of document.querySelectorAll("#bar nav a")) link.ariaCurrent = link.hash === `#${first?.id}` ? "true" : null;
  }

  // --- choices -----------------------------------------------------------------------------------------

  function setVersion() {
    version += 1;
    main.dataset.version = version;
  }

  function changed() {
    const { test, unknown } = hptuneTable.filterOf(by("filter").value, study, chosen.metric);
    chosen.test = test;
    setVersion();
    const told = by("filter-told");
    told.dataset.first ||= told.innerHTML;
    told.classList.toggle("wrong", unknown.length > 0);
    by("filter").setAttribute("aria-invalid", unknown.length > 0);
    if (unknown.length) told.textContent = `Nothing is known of: ${unknown.join(" ")}. These words are left out.`;
    else told.innerHTML = told.dataset.first;
    const found = study.trials.filter(each => isShown(each, chosen) && isBrushed(study, chosen, each)).length;
    const count = found === study.trials.length ? "" : `${found} of ${study.trials.length} trials`;
    for (const each of document.querySelectorAll(".count")) each.textContent = count;
    const chips = Object.keys(chosen.brush).map(name => chip(brushText(study, chosen, name), () => delete chosen.brush[name]));
    if (chosen.only) chips.push(chip(`${chosen.only.size} trials`, () => { chosen.only = null; }));
    by("brushes").replaceChildren(...chips);
    drawSeen({ isAsked: true });
  }

  function chip(text, undo) {
    const remove = () => { undo(); changed(); };
    return element("button", { type: "button", onclick: remove, "aria-label": `Remove ${text}` }, `${text} ✕`);
  }

  function options(select, found, value) {
    const before = [...select.options].map(each => each.value).join("\n");
    if (before === found.map(([each]) => each).join("\n")) return;
    select.replaceChildren(...found.map(([each, label]) => element("option", { value: each }, label)));
    select.value = found.some(([each]) => each === value) ? value : found[0]?.[0];
  }

  function fillChoices() {
    options(by("metric"), study.metrics.map(each => [each, each]), chosen.metric);
    const parameters = study.space.map(each => ["param " + each.name, each.label]);
    options(by("color"), [["state", "state"], ["value", "value"], ["number", "trial number"], ...parameters], chosen.color);
  }

  function pairChoice() {
    const numbers = pairs(study, chosen);
    const names = numbers.map(each => each.name), pair = [...(chosen.pair || []), ...names.filter(each => !(chosen.pair || []).includes(each))].slice(0, 2);
    const select = (index, id) => element("select", { id, onchange: event => {
      pair[index] = event.target.value;
      if (pair[0] === pair[1]) pair[1 - index] = names.find(each => each !== pair[0]);
      chosen.pair = pair;
      changed();
    } }, ...numbers.map(each => element("option", { value: each.name, selected: each.name === pair[index] }, each.label)));
    const field = (label, index, id) => element("span", {}, element("label", { for: id }, label), " ", select(index, id));
    return element("div", { class: "pair" }, field("Across", 0, "across"), field("Up", 1, "up"));
  }

  function listen() {
    const bound = { metric: "metric", "value-axis": "valueAxis", axes: "axes", color: "color", states: "states" };
    for (const [id, name] of Object.entries(bound)) {
      by(id).addEventListener("change", event => {
        chosen[name] = event.target.value;
        if (name === "metric") hooks.metric(chosen.metric);
        changed();
      });
    }
    let timer = 0;
    by("filter").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(changed, 150); });
    chosen.changed = changed;
    main.addEventListener("click", ({ target }) => {
      if (!target.dataset.show) return;
      chosen.only = new Set(target.dataset.show.split(",").map(Number));
      changed();
      by("trials").scrollIntoView();
    });
    addEventListener("keydown", event => {
      const { key, target } = event, isFree = target === document.body || target === by("trial");
      if (trialNow() === null || !isFree || event.ctrlKey || event.metaKey || event.altKey) return;
      if (key in STEPS) by("trial").querySelector(`[data-key="${STEPS[key]}"]`)?.click();
    });
  }

  // --- one trial -----------------------------------------------------------------------------------------

  function trialNow() {
    const found = location.hash.match(/^#trial-(\d+)$/);
    return found ? Number(found[1]) : null;
  }

  let shownTrial = null, scrolled = 0;

  function route() {
    const number = trialNow(), place = by("trial");
    if (number === shownTrial) return;
    if (shownTrial === null) scrolled = scrollY;
    shownTrial = number;
    document.body.classList.toggle("has-trial", number !== null);
    place.hidden = number === null;
    forget(place);
    place.replaceChildren();
    if (number === null) {
      drawSeen();
      if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
      else scrollTo(0, scrolled);
      return;
    }
    place.append(element("div", { id: "trial-facts" }), element("div", { id: "trial-log" }));
    showTrial();
    hooks.trial(number);
    figuresIn(by("trials")).slice(0, 1).forEach(drawOne);  // it stands beside the trial
    scrollTo(0, 0);
    place.focus({ preventScroll: true });
  }

  function showTrial() {
    const place = by("trial-facts"), number = trialNow();
    if (!place) return;
    const of = study.byNumber.get(number);
    const beside = neighbours(number), json = JSON.stringify([of ?? null, beside]);
    if (place.dataset.of === json || isSelected(place)) return;
    place.dataset.of = json;
    const focused = document.activeElement?.dataset?.key;
    forget(place);
    place.replaceChildren(...(of ? trialParts(of, beside) : [steps(beside), element("p", {}, `There is no trial ${number} here.`)]));
    watch(place);
    figuresIn(place).forEach(drawOne);
    if (focused) place.querySelector(`[data-key="${focused}"]`)?.focus();
  }

  // The keys that do what a link does.
  const STEPS = { ArrowLeft: "previous", ArrowRight: "next", Escape: "back" };

  // The trials before and after one in the table.
  function neighbours(number) {
    const rows = hptuneTable.rowsOf(study, chosen, table), all = rows.some(each => each.n === number) ? rows : study.trials;
    const at = all.findIndex(each => each.n === number);
    return [all[at - 1], all[at + 1]].map(each => each?.n);
  }

  function steps([previous, next]) {
    const link = (to, text, key) => to === undefined ? "" : element("a", { href: `#trial-${to}`, "data-key": key }, text);
    return element("nav", { "aria-label": "Trials" }, element("a", { href: "#trials", "data-key": "back", title: "Key: Escape" }, "← All trials"), link(previous, "← Previous", "previous"), link(next, "Next →", "next"));
  }

  function trialParts(of, beside) {
    const best = study.byNumber.get(study.best);
    const goals = Object.keys(study.direction), is = of.n === study.best && goals.length < 2 ? ", the best" : study.front.includes(of.n) ? ", on the Pareto front" : "";
    const facts = [
      ...goals.map(each => [each, shown(of.v[each], true)]),
      [`from ${study.step}`, shown(of.step)], ["time", duration(of.seconds) || "–"], ["proposed by", of.origin],
      ["trains again", of.confirms === undefined ? null : element("a", { href: `#trial-${of.confirms}` }, `trial ${of.confirms}`)],
      ["tags", of.tags], ["notes", of.notes], ["reason", of.reason], ["model", of.model ? modelLink(of.model) : null],
    ].filter(([, value]) => value !== null && value !== undefined && value !== "");
    const params = Object.entries(of.p).map(([name, value]) => {
      const known = study.space.find(each => each.name === name);
      const other = best && best.n !== of.n ? [name in best.p ? words(best.p[name]) : "–"] : [];
      return [known ? known.label : name, words(value), ...other, known ? known.text : "fixed"];
    });
    const columns = ["hyperparameter", "value", ...(best && best.n !== of.n ? [`best (trial ${best.n})`] : []), "range"];
    const metrics = Object.entries(of.v).filter(([name]) => !goals.includes(name)).map(([name, value]) => [name, shown(value, true)]);
    const curves = Object.entries(of.c || {}).filter(([, [, values]]) => values.length > 1).map(([metric]) => element("div", { class: "figure", "data-figure": JSON.stringify(["curve", { metric }]) }));
    return [
      steps(beside),
      element("h2", {}, `Trial ${of.n} `, element("span", { class: `state ${of.s}` }, of.s + is)),
      element("dl", { class: "facts" }, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
      element("div", { class: "tables" }, tableOf(columns, params), metrics.length ? tableOf(["metric", "value"], metrics) : ""),
      curves.length ? element("div", { class: "figures several" }, ...curves) : "",
      ...attempts(of), ...of.detail ? [element("h3", {}, "Why it failed"), element("pre", { class: "detail", tabindex: 0 }, of.detail)] : [],
      element("h3", {}, "Commands"), ...commands(of),
    ];
  }

  function modelLink(path) {
    if (location.protocol !== "file:" || !path.startsWith("/")) return element("code", {}, path);
    return element("a", { href: "file://" + encodeURI(path) }, path);
  }

  function tableOf(columns, rows) {
    const head = columns.map(each => element("th", { scope: "col" }, each));
    const body = rows.map(row => element("tr", {}, ...row.map(each => element("td", {}, each))));
    return element("div", { class: "scroll", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  }

  function attempts(of) {
    if (!of.a) return [];
    const rows = of.a.map((each, index) => [
      index, each.end, each.why || "–", each.s === null ? "–" : duration((each.e ?? study.now) - each.s),
      each.mem || "–", each.gpu || "–", each.cpu === undefined ? "–" : duration(each.cpu), each.at, new Date(1000 * each.b).toLocaleString(),
    ]);
    const columns = ["attempt", "ended", "why", "time", "memory", "GPU memory", "CPU time", "where", "placed"];
    return [element("h3", {}, "Attempts"), tableOf(columns, rows.map(row => row.map(String)))];
  }

  function commands(of) {
    const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
    const again = study.runOne ? `${study.runOne} --try ${quoted(JSON.stringify(of.p))}` : "";
    const all = [["Train this configuration again", again], ["Everything about it", `hptune show ${study.study} ${of.n}`], ["What it printed", `hptune log ${study.study} ${of.n}`]];
    return all.filter(([, text]) => text).map(([label, text]) => {
      const copy = async event => { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; };
      return element("p", { class: "command" }, `${label}: `, element("code", {}, text), " ", element("button", { type: "button", "data-key": label, onclick: copy }, "Copy"));
    });
  }

  // --- the beginning, and what is new ----------------------------------------------------------------------

  function begin() {
    chosen = firstChoice(study);
    fillChoices();
    listen();
    const isWide = matchMedia("(min-width: 1200px)");
    by("choices").open = isWide.matches;
    isWide.addEventListener("change", () => { by("choices").open = isWide.matches; });
    watch(main);
    addEventListener("hashchange", route);
    addEventListener("scroll", markLink, { passive: true });
    addEventListener("beforeprint", () => drawSeen({ isAll: true }));
    setVersion();
    route();
    markLink();
  }

  // Takes over data of the study and of the trials that have changed.
  function update(facts, trials) {
    const rows = new Map(study.trials.map(each => [each.n, each]));
    for (const each of trials) {
      const before = rows.get(each.n);  // further metrics' curves were fetched apart
      rows.set(each.n, before && before.c ? { ...each, c: { ...before.c, ...each.c } } : each);
    }
    const all = [...rows.values()].sort((one, other) => one.n - other.n);
    study = studyOf({ ...facts, trials: all, version: (study.version || 0) + 1 });
    if (!chosen.metric) chosen.metric = study.metric;
    fillChoices();
    setVersion();
    showTrial();
    drawSeen();
  }

  function addCurves(found) {
    for (const [number, curves] of Object.entries(found)) {
      const of = study.byNumber.get(Number(number));
      if (of) of.c = { ...of.c, ...curves };
    }
    setVersion();
    showTrial();
    drawSeen();
  }

  begin();
  return { update, addCurves, watch, forget, drawSeen, isSelected, hooks, trialNow, metric: () => chosen.metric };
})();
