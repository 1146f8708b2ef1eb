"use strict";
// Which trials of a study are shown, with which colours, and where they are on each axis.
window.hptuneTrials ??= (() => {
  const { COLORS, SERIES, VIRIDIS, number, words, linear, log, bands } = hptuneCharts;
  const VALUED = ["complete", "pruned", "paused"];
  // How the trials of each state look, and what the legend calls them.
  const LOOKS = {
    complete: { shape: "dot", color: COLORS.complete, text: () => "complete" },
    pruned: { shape: "triangle", color: COLORS.pruned, text: step => `pruned, at its last ${step}` },
    paused: { shape: "triangle", color: COLORS.paused, text: step => `paused, at its last ${step}` },
    running: { shape: "dot", color: COLORS.running, text: () => "running" },
  };
  const MOST_LINES = 2000;  // more hide each other, and take seconds to paint
  const DECADES = 100;  // small values of two decades are shown on a log axis
  const FEW = 12;  // values of a hyperparameter that have a band each

  // A study's data as the figures need it.
  function studyOf(data) {
    const trials = data.trials.filter(Boolean);
    return { ...data, trials, byNumber: new Map(trials.map(each => [each.n, each])), version: data.version || 0 };
  }

  function firstChoice(study, states = "all") {
    return { metric: study.metric, valueAxis: "auto", axes: "searched", color: "state", states, brush: {}, pair: null };
  }

  // --- which trials, and how they look -----------------------------------------------------------

  // Whether a trial is one of those that the reader has chosen to see.
  function isShown(trial, chosen) {
    return (chosen.states === "all" || trial.s === chosen.states) && (!chosen.only || chosen.only.has(trial.n)) && (!chosen.test || chosen.test(trial));
  }

  function valued(study, chosen) {
    return study.trials.filter(each => VALUED.includes(each.s) && Number.isFinite(each.v[chosen.metric]) && isShown(each, chosen));
  }

  function isBrushed(study, chosen, trial) {
    return Object.entries(chosen.brush || {}).every(([name, [low, high]]) => {
      const at = axisOf(study, chosen, name).unit(trial);
      return at !== null && at >= low && at <= high;
    });
  }

  // Trials of which a figure draws a line each, the first and the last among them, and what it says
  // about the others. What the brushes leave is drawn before other trials.
  function lined(study, chosen, trials) {
    if (trials.length <= MOST_LINES) return { drawn: trials, note: "" };
    const within = spread(trials.filter(each => isBrushed(study, chosen, each)), MOST_LINES);
    const others = spread(trials.filter(each => !isBrushed(study, chosen, each)), MOST_LINES - within.length);
    const chosenOnes = new Set([...within, ...others]);
    return { drawn: trials.filter(each => chosenOnes.has(each)), note: `${chosenOnes.size} of ${trials.length} trials are drawn, evenly chosen. A filter that leaves fewer shows all of them.` };
  }

  function spread(all, most) {
    if (all.length <= most) return all;
    return Array.from({ length: most }, (_, index) => all[Math.round(index * (all.length - 1) / Math.max(1, most - 1))]);
  }

  function isInfeasible(trial) {
    return trial.s === "complete" && trial.violation > 0;
  }

  function shapeOf(trial) {
    return isInfeasible(trial) ? "cross" : LOOKS[trial.s]?.shape ?? "triangle";
  }

  function isBetter(study, metric, one, other) {
    return study.direction[metric] === "max" ? one > other : one < other;
  }

  // The colour of each trial, and the legend that says what it means.
  function colours(study, chosen, trials) {
    if (chosen.color === "state") {
      const of = each => isInfeasible(each) ? COLORS.muted : LOOKS[each.s].color;
      const found = Object.entries(LOOKS).filter(([state]) => trials.some(each => each.s === state && !isInfeasible(each)));
      const legend = found.map(([, { shape, color, text }]) => [text(study.step), color, shape]);
      if (trials.some(isInfeasible)) legend.push(["breaks a constraint", COLORS.muted, "cross"]);
      return { of, legend };
    }
    const parameter = study.space.find(each => "param " + each.name === chosen.color);
    if (parameter && parameter.values && parameter.values.length <= FEW) {
      const color = value => SERIES[Math.max(0, parameter.values.indexOf(value)) % SERIES.length];
      const legend = parameter.values.slice(0, FEW).map(each => [`${parameter.label} ${words(each)}`, color(each), "dot"]);
      return { of: each => parameter.name in each.p ? color(each.p[parameter.name]) : COLORS.muted, legend };
    }
    const get = parameter ? each => each.p[parameter.name] : chosen.color === "number" ? each => each.n : each => each.v[chosen.metric];
    return { ...gradient(study, chosen, trials, get, parameter), legend: [] };
  }

  function gradient(study, chosen, trials, get, parameter) {
    let found = trials.map(get).filter(Number.isFinite);
    const isValue = !parameter && chosen.color !== "number";
    let [low, high] = extent(found);
    if (isValue) [low, high] = usual(found, study.direction[chosen.metric]) || [low, high];
    const scale = parameter && parameter.log ? log(low, high, { margin: 0 }) : linear(low, high, { margin: 0 });
    const isDown = isValue && study.direction[chosen.metric] === "min";  // yellow is best
    const of = each => {
      if (!Number.isFinite(get(each))) return COLORS.muted;
      const at = Math.min(1, Math.max(0, scale.place(get(each))));
      return VIRIDIS[Math.round((isDown ? 1 - at : at) * (VIRIDIS.length - 1))];
    };
    const ends = isDown ? [high, low] : [low, high];
    const label = parameter ? parameter.label : chosen.color === "number" ? "trial" : chosen.metric;
    return { of, gradient: { label, low: number(ends[0] ?? 0), high: number(ends[1] ?? 0) } };
  }

  function extent(values) {
    let low = Infinity, high = -Infinity;
    for (const each of values) { if (each < low) low = each; if (each > high) high = each; }
    return low > high ? [0, 1] : [low, high];
  }

  function quantilesOf(values) {
    const sorted = Float64Array.from(values).sort();
    return share => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  }

  // The range that leaves out values far on the worse side; null to show all.
  function usual(values, direction) {
    if (values.length < 8 || !direction) return null;
    const at = quantilesOf(values), slack = 2 * (at(0.75) - at(0.25)), [least, most] = [at(0), at(1)];
    if (direction === "max" && least < at(0.25) - slack) return [at(0.25) - slack, most];
    if (direction === "min" && most > at(0.75) + slack) return [least, at(0.75) + slack];
    return null;
  }

  // Where less is better, a log axis tells good values apart; else it would press them together.
  // The few worst values do not count.
  function spansDecades(values, direction) {
    const at = quantilesOf(values);
    return direction !== "max" && at(0) > 0 && at(0.95) >= DECADES * at(0);
  }

  function fitting(values, direction) {
    return (spansDecades(values, direction) ? log : linear)(...extent(values));
  }

  // The scale of values, and its ends where it leaves some out.
  function valueAxis(study, chosen, values) {
    const direction = study.direction[chosen.metric], positive = values.filter(each => each > 0);
    if (positive.length && (chosen.valueAxis === "log" || (chosen.valueAxis === "auto" && spansDecades(values, direction)))) {
      const left = values.length - positive.length;
      const range = usual(positive.map(Math.log10), direction)?.map(each => 10 ** each), [least, most] = range || extent(positive);
      return { scale: most > least ? log(least, most) : linear(least, most), range, note: left ? `Not shown: ${left === 1 ? "one value" : left + " values"} of 0 or less, which a logarithmic axis does not have.` : "" };
    }
    const range = usual(values, direction);
    return { scale: linear(...range || extent(values)), range, note: "" };
  }

  function parameterScale(parameter, trials, axes) {
    if (isBanded(parameter)) return bands(parameter.values);
    const found = trials.map(each => each.p[parameter.name]).filter(Number.isFinite);
    const [low, high] = extent([...found, parameter.low, parameter.high].filter(Number.isFinite));
    const isLog = axes === "log" || (axes !== "linear" && parameter.log);
    return isLog && low > 0 ? log(low, high) : linear(low, high);
  }

  function isBanded(parameter) {
    return Boolean(parameter.values) && (parameter.values.length <= FEW || parameter.low === null);
  }

  // A small shift beside its band, always the same for a trial.
  function jitter(trial, scale) {
    return scale.band ? (((trial.n * 0.61803398875) % 1) - 0.5) * 0.55 * scale.band : 0;
  }

  function ranked(study, chosen) {
    const names = study.order[chosen.states === "complete" ? "complete" : "all"];
    const found = names.map(name => study.space.find(each => each.name === name)).filter(Boolean);
    return [...found, ...study.space.filter(each => !names.includes(each.name))];
  }

  function curveOf(trial, metric) {
    const found = trial.c && trial.c[metric];
    if (!found) return null;
    const [steps, values] = found;
    return values.map((value, index) => [steps ? steps[index] : index + 1, value]);
  }

  // Two hyperparameters with a scale of numbers that a contour can be drawn over.
  function pairs(study, chosen) {
    return ranked(study, chosen).filter(each => Number.isFinite(each.low) && Number.isFinite(each.high) && (!each.values || each.values.length > 2));
  }

  // --- axes and brushes ---------------------------------------------------------------------------

  // The names of axes of values begin with a line break, as no hyperparameter's does.
  const VALUE_AXIS = "\n";

  // The axes of the chosen metric and, with several objectives, of those that are not chosen.
  function valueAxes(study, chosen) {
    const goals = Object.keys(study.direction);
    const others = goals.length > 1 ? goals.filter(goal => goal !== chosen.metric) : [];
    return [VALUE_AXIS, ...others.map(goal => VALUE_AXIS + goal)];
  }

  // An axis of the parallel figure: where a trial is on it, from 0 to 1; null if it has no value.
  function axisOf(study, chosen, name) {
    const known = chosen.known ||= { of: null, axes: new Map() };
    const key = [chosen.metric, chosen.axes, chosen.valueAxis, study.version].join();
    if (known.of !== key) Object.assign(known, { of: key, axes: new Map() });
    if (!known.axes.has(name)) known.axes.set(name, madeAxis(study, chosen, name));
    return known.axes.get(name);
  }

  function madeAxis(study, chosen, name) {
    if (name.startsWith(VALUE_AXIS)) {
      const metric = name.slice(VALUE_AXIS.length) || chosen.metric;
      const all = study.trials.filter(each => VALUED.includes(each.s)).map(each => each.v[metric]).filter(Number.isFinite);
      const { scale } = valueAxis(study, { ...chosen, metric }, all);
      const unit = trial => Number.isFinite(trial.v[metric]) ? Math.min(1, Math.max(0, scale.place(trial.v[metric]))) : null;
      return { label: metric, scale, unit };
    }
    const parameter = study.space.find(each => each.name === name);
    const scale = parameterScale(parameter, study.trials, chosen.axes);
    const unit = trial => {
      const at = name in trial.p ? scale.place(trial.p[name]) : NaN;
      return Number.isFinite(at) ? at + jitter(trial, scale) * 0.7 : null;
    };
    return { label: parameter.label, scale, unit };
  }

  // A brush in words, such as "units 64 to 128".
  function brushText(study, chosen, name) {
    const [low, high] = chosen.brush[name], { label, scale } = axisOf(study, chosen, name);
    const [from, to] = [words(scale.at(low)), words(scale.at(high))];
    return from === to ? `${label} ${from}` : `${label} ${from} to ${to}`;
  }

  return { VALUED, studyOf, firstChoice, isShown, valued, isBrushed, lined, isBetter, isInfeasible, shapeOf, colours, extent, fitting, valueAxis, parameterScale, jitter, ranked, curveOf, pairs, valueAxes, axisOf, brushText };
})();
