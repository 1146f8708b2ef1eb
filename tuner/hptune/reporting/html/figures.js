"use strict";
// The figures of a study, drawn from its data and from what the reader has chosen.
window.hptuneFigures ??= (() => {
  const { COLORS, SERIES, element, svg, number, words, short, linear, log, bands, chart, legendOf, present, follow, paths } = hptuneCharts;
  const { VALUED, isShown, valued, isBrushed, lined, isBetter, isInfeasible, shapeOf, colours, extent, fitting, valueAxis, parameterScale, jitter, ranked, curveOf, pairs, valueAxes, axisOf } = hptuneTrials;
  const SLICES = 6, AXES = 12;
  const CELLS = 56, SMOOTHING = 0.09;  // of the contour; a share of each axis
  const CONTOUR_TRIALS = 10;
  const UNITS = [["days", 86400], ["hours", 3600], ["minutes", 60], ["seconds", 1]];
  const ENDS = { finished: COLORS.complete, pruned: COLORS.pruned, released: COLORS.muted, errored: COLORS.failed, "lost, retried": "#d98b8b", running: COLORS.running, interrupted: "#b9bdc4" };

  const USES = { "used well": COLORS.complete, pruned: COLORS.pruned, failed: COLORS.failed, "lost and repeated": ENDS["lost, retried"], "idle cores": COLORS.muted, "unfinished trials": COLORS.running };

  function tipOf(study, chosen) {
    return trial => {
      const of = study.byNumber.get(trial);
      if (!of) return `trial ${trial}`;
      const value = of.v[chosen.metric];
      const params = Object.entries(of.p).map(([name, each]) => `${short(name, 30)}=${words(each)}`).join(" ");
      return `trial ${trial}, ${of.s}${Number.isFinite(value) ? `\n${chosen.metric} ${number(value)}` : ""}\n${short(params, 300)}`;
    };
  }

  function common(study, chosen, label, name) {
    const pick = trial => { location.hash = `trial-${trial}`; };
    return { tip: tipOf(study, chosen), pick: chosen.isAlone ? undefined : pick, label, name };
  }

  // A value far on the worse side is shown at the end of the axis, with a mark of its own.
  function valuesOf(chosen, axis) {
    return trial => {
      const y = trial.v[chosen.metric], [low, high] = axis.range || [-Infinity, Infinity];
      return y < low ? { y: low, shape: "lower" } : y > high ? { y: high, shape: "higher" } : { y };
    };
  }

  function beyond(chosen, axis, trials) {
    const shapes = new Set(trials.map(each => valuesOf(chosen, axis)(each).shape));
    return [["far below the axis", "lower"], ["far above the axis", "higher"]].filter(([, shape]) => shapes.has(shape)).map(([text, shape]) => [text, COLORS.muted, shape]);
  }

  function pointsOf(study, chosen, trials, xOf, yOf, color, shift) {
    return trials.map(each => ({
      x: xOf(each), trial: each.n, shape: shapeOf(each), color: color(each), ...yOf(each),
      dim: !isBrushed(study, chosen, each), shift: shift ? shift(each) : 0,
    }));
  }

  const LEGEND = 60;  // pixels that a figure needs beside its picture

  // The height of a figure that fills its card, which may be as high as the one beside it.
  function filling(place, least) {
    const card = place.closest("main[data-version] > section"), picture = place.querySelector(":scope > svg");
    if (innerWidth < 1200 || !card) return least;
    const left = card.getBoundingClientRect().bottom - parseFloat(getComputedStyle(card).paddingBottom) - card.lastElementChild.getBoundingClientRect().bottom - 1;
    return Math.max(least, Math.floor(left + (picture ? picture.clientHeight : place.clientHeight - LEGEND)));
  }

  function isOneGoal(study) {
    return Object.keys(study.direction).length < 2;
  }

  // --- figures; each returns whether it has something to show -------------------------------------

  function history(place, study, chosen) {
    const trials = valued(study, chosen);
    if (!trials.length) return false;
    const { metric } = chosen, color = colours(study, chosen, trials);
    const best = [];
    if (study.direction[metric]) {
      for (const each of trials.filter(each => each.s === "complete" && !isInfeasible(each) && each.confirms === undefined)) {
        const value = each.v[metric];
        if (!best.length || isBetter(study, metric, value, best.at(-1)[1])) best.push([each.n, value]);
      }
    }
    const last = trials.at(-1).n;
    if (best.length) best.push([last, best.at(-1)[1]]);
    const y = valueAxis(study, chosen, trials.map(each => each.v[metric]));
    const legend = [...color.legend, ...beyond(chosen, y, trials), ...best.length ? [[isOneGoal(study) ? "best so far" : `best ${metric} so far`, COLORS.best, "line"]] : []];
    chart(place, {
      ...common(study, chosen, `${metric} of each trial`, "history"),
      x: linear(0, Math.max(1, last), { whole: true }), y: y.scale, xLabel: "trial", yLabel: metric, note: y.note,
      height: chosen.height || (innerWidth < 700 ? 180 : filling(place, 300)), legend, gradient: color.gradient,
      marks: [
        { points: pointsOf(study, chosen, trials, each => each.n, valuesOf(chosen, y), color.of) },
        { lines: [{ at: best, color: COLORS.best }], isStep: true, width: 2, opacity: 1 },
      ],
    });
    return true;
  }

  function curves(place, study, chosen) {
    const { metric } = chosen, found = [];
    for (const trial of study.trials) {
      if (!VALUED.includes(trial.s) && trial.s !== "running" || !isShown(trial, chosen)) continue;
      const at = curveOf(trial, metric);
      if (at?.length) found.push([trial, at]);
    }
    if (!found.some(([, at]) => at.length > 1)) return false;
    const color = colours(study, chosen, found.map(([trial]) => trial));
    const values = found.flatMap(([, at]) => at.map(([, value]) => value)).filter(Number.isFinite);
    const y = valueAxis(study, chosen, values);
    const [, last] = extent(found.map(([, at]) => at.at(-1)[0]));
    const best = found.find(([trial]) => trial.n === study.best);
    const middle = median(found.filter(([trial]) => trial.s === "complete").map(([, at]) => at));
    const isPoint = ([, at]) => at.length === 1;
    const curveOfTrial = new Map(found), few = lined(study, chosen, found.map(([trial]) => trial));
    const drawn = few.drawn.map(trial => [trial, curveOfTrial.get(trial)]);
    const legend = color.legend.map(([text, paint]) => [text.split(",")[0], paint, "line"]);
    if (middle.length) legend.push(["median of the complete", COLORS.median, "dashed"]);
    if (best) legend.push([`best ${isOneGoal(study) ? "" : `${study.metric} `}(trial ${study.best})`, COLORS.best, "line"]);
    chart(place, {
      ...common(study, chosen, `${metric} after each ${study.step}`, "curves"),
      x: linear(1, Math.max(2, last), { whole: true }), y: y.scale, xLabel: study.step, yLabel: metric, height: filling(place, 300), note: `${y.note} ${few.note}`.trim(), legend, gradient: color.gradient,
      marks: [
        { lines: drawn.map(([trial, at]) => ({ at, trial: trial.n, color: color.of(trial), dim: !isBrushed(study, chosen, trial) })), opacity: Math.min(0.8, Math.max(0.3, 20 / drawn.length)) },
        { points: drawn.filter(isPoint).map(([trial, [[x, y]]]) => ({ x, y, trial: trial.n, color: color.of(trial), dim: !isBrushed(study, chosen, trial) })) },
        { lines: [{ at: middle, color: COLORS.median }], width: 2.5, dash: "7 5", opacity: 1 },
        { lines: best ? [{ at: best[1], color: COLORS.best }] : [], width: 2.5, opacity: 1 },
      ],
    });
    return true;
  }

  // A median over few of the trials would jump.
  function median(found) {
    const at = new Map();
    for (const curve of found) {
      for (const [step, value] of curve) at.has(step) ? at.get(step).push(value) : at.set(step, [value]);
    }
    const [, most] = extent([...at.values()].map(each => each.length));
    const middle = values => values.sort((one, other) => one - other)[Math.floor(values.length / 2)];
    return [...at].filter(([, values]) => most > 1 && 2 * values.length >= most).sort((one, other) => one[0] - other[0]).map(([step, values]) => [step, middle(values)]);
  }

  // Some trials' curves over each other, each with its own colour.
  function comparison(place, study, numbers, metric, height = 240) {
    const found = numbers.map(each => study.byNumber.get(each)).filter(each => each && curveOf(each, metric)?.length);
    if (!found.some(each => curveOf(each, metric).length > 1)) return false;
    const lines = found.map(each => ({ at: curveOf(each, metric), trial: each.n, color: SERIES[numbers.indexOf(each.n) % SERIES.length] }));
    const points = lines.map(each => each.at).flat();
    const [first, last] = extent(points.map(([step]) => step));
    chart(place, {
      ...common(study, { metric }, `${metric} after each ${study.step}`, metric),
      x: linear(first, last, { whole: true }), y: fitting(points.map(([, value]) => value).filter(Number.isFinite), study.direction[metric]), xLabel: study.step, yLabel: metric, height,
      legend: numbers.length > 1 ? lines.map(each => [`trial ${each.trial}`, each.color, "line"]) : [],
      marks: [{ lines, width: 2, opacity: 0.9 }, { points: lines.filter(each => each.at.length === 1).map(({ at: [[x, y]], trial, color }) => ({ x, y, trial, color })) }],
    });
    return true;
  }

  function front(place, study, chosen) {
    const goals = Object.keys(study.direction);
    const trials = study.trials.filter(each => each.s === "complete" && isShown(each, chosen) && goals.slice(0, 2).every(goal => Number.isFinite(each.v[goal])));
    if (goals.length < 2 || !trials.length) return false;
    const color = colours(study, chosen, trials), isBest = each => study.front.includes(each.n);
    const axis = goal => fitting(trials.map(each => each.v[goal]), study.direction[goal]);
    const points = pointsOf(study, chosen, trials, each => each.v[goals[0]], each => ({ y: each.v[goals[1]] }), each => isBest(each) && chosen.color === "state" ? COLORS.best : color.of(each));
    points.sort((one, other) => study.front.includes(one.trial) - study.front.includes(other.trial));
    chart(place, {
      ...common(study, chosen, `${goals[1]} over ${goals[0]}`, "front"),
      x: axis(goals[0]), y: axis(goals[1]), xLabel: `${goals[0]} (${study.direction[goals[0]]})`, yLabel: `${goals[1]} (${study.direction[goals[1]]})`,
      legend: [...color.legend, ["on the front", COLORS.best, "dot"]], gradient: color.gradient, marks: [{ points }],
    });
    return true;
  }

  function slices(place, study, chosen) {
    const trials = valued(study, chosen), parameters = ranked(study, chosen);
    if (!trials.length || !parameters.length) return false;
    const most = chosen.slices || SLICES;
    place.classList.add("several");
    place.replaceChildren();
    const color = colours(study, chosen, trials);
    const y = valueAxis(study, chosen, trials.map(each => each.v[chosen.metric]));
    const places = parameters.slice(0, most).map(parameter => [parameter, element("div", { class: "figure" })]);
    place.append(element("div", { class: "all" }, legendOf([...color.legend, ...beyond(chosen, y, trials)], color.gradient)), ...places.map(([, made]) => made));
    for (const [parameter, made] of places) {
      const active = trials.filter(each => parameter.name in each.p);
      const x = parameterScale(parameter, active, chosen.axes);
      chart(made, {
        ...common(study, chosen, `${chosen.metric} over ${parameter.label}`, parameter.label),
        x, y: y.scale, xLabel: parameter.label, yLabel: chosen.metric, height: 230, note: y.note,
        marks: [{ points: pointsOf(study, chosen, active, each => each.p[parameter.name], valuesOf(chosen, y), color.of, each => jitter(each, x)) }],
      });
    }
    if (parameters.length > most && !chosen.isAlone) {
      const all = () => { chosen.slices = parameters.length; slices(place, study, chosen); };
      place.append(element("button", { type: "button", class: "all", onclick: all }, `Show all ${parameters.length}`));
    }
    return true;
  }

  function contour(place, study, chosen) {
    const numbers = pairs(study, chosen);
    const [across, up] = (chosen.pair || []).map(name => numbers.find(each => each.name === name)).concat(numbers.filter(each => !(chosen.pair || []).includes(each.name)));
    if (!across || !up) return false;
    const trials = valued(study, chosen).filter(each => Number.isFinite(each.p[across.name]) && Number.isFinite(each.p[up.name]));
    const complete = trials.filter(each => each.s === "complete");
    if (complete.length < CONTOUR_TRIALS) return false;
    const color = colours(study, { ...chosen, color: "value" }, complete);
    const [x, y] = [parameterScale(across, trials, chosen.axes), parameterScale(up, trials, chosen.axes)];
    const points = pointsOf(study, chosen, trials, each => each.p[across.name], each => ({ y: each.p[up.name] }), () => "var(--text)", each => jitter(each, x));
    chart(place, {
      ...common(study, chosen, `${chosen.metric} over ${across.label} and ${up.label}`, "contour"),
      x, y, xLabel: across.label, yLabel: up.label, height: 340, legend: [], gradient: color.gradient,
      marks: [{ image: smoothed(complete, each => [x.place(each.p[across.name]), y.place(each.p[up.name])], color.of), left: 0, right: 1, bottom: 0, top: 1 }, { points }],
    });
    return true;
  }

  // The kernel-weighted mean of the colours; it fades out where nothing was tried.
  function smoothed(trials, at, color) {
    const canvas = element("canvas", { width: CELLS, height: CELLS });
    const draw = canvas.getContext("2d"), image = draw.createImageData(CELLS, CELLS);
    const sums = new Float64Array(CELLS * CELLS * 4);
    for (const trial of trials) {
      const [x, y] = at(trial), paint = color(trial).match(/\w\w/g).map(each => parseInt(each, 16));
      const near = centre => Float64Array.from({ length: CELLS }, (_, cell) => Math.exp(-0.5 * (((cell + 0.5) / CELLS - centre) / SMOOTHING) ** 2));
      const [wx, wy] = [near(x), near(1 - y)];
      for (let row = 0, place = 0; row < CELLS; row++) {
        for (let column = 0; column < CELLS; column++, place += 4) {
          const weight = wx[column] * wy[row];
          sums[place] += weight * paint[0];
          sums[place + 1] += weight * paint[1];
          sums[place + 2] += weight * paint[2];
          sums[place + 3] += weight;
        }
      }
    }
    for (let place = 0; place < sums.length; place += 4) {
      const total = sums[place + 3];
      for (let part = 0; part < 3; part++) image.data[place + part] = sums[place + part] / (total || 1);
      image.data[place + 3] = 235 * Math.min(1, total * 1.5);
    }
    draw.putImageData(image, 0, 0);
    return canvas.toDataURL();
  }

  // --- all configurations -------------------------------------------------------------------------

  function parallel(place, study, chosen) {
    const trials = valued(study, chosen);
    if (!trials.length || study.space.length < 2) return false;
    const names = ranked(study, chosen).slice(0, AXES).map(each => each.name);
    const known = [...valueAxes(study, chosen), ...names];
    const order = [...(chosen.axisOrder || []).filter(each => known.includes(each)), ...known.filter(each => !(chosen.axisOrder || []).includes(each))];
    const axes = order.map(name => ({ name, ...axisOf(study, chosen, name) }));
    const width = Math.max(place.clientWidth, 62 * axes.length + 60), height = 360;
    const written = axes.at(-1).scale.ticks(5).map(([, text]) => short(text, 14).length);
    const [left, right, top, bottom] = [34, Math.max(74, 6 + 8 * Math.max(...written)), 46, 30];
    const gap = (width - left - right) / (axes.length - 1), down = height - top - bottom;
    const xs = axes.map((_, index) => left + index * gap), y = unit => top + (1 - unit) * down;
    const color = colours(study, chosen.color === "state" ? { ...chosen, color: "value" } : chosen, trials);
    const sorted = study.direction[chosen.metric] ? [...trials].sort((one, other) => isBetter(study, chosen.metric, one.v[chosen.metric], other.v[chosen.metric]) ? 1 : -1) : trials;
    const low = height - bottom + 14;  // of a trial that has no value
    const { drawn: few, note } = lined(study, chosen, sorted);
    const units = few.map(trial => axes.map(axis => axis.unit(trial)));
    const lines = few.map((trial, number) => {
      const dim = !isBrushed(study, chosen, trial);
      const path = units[number].map((at, index) => `${index ? "L" : "M"}${Math.round(xs[index])} ${at === null ? low : Math.round(10 * y(at)) / 10}`).join("");
      return { path, dim, color: color.of(trial) };
    });
    const drawn = svg("g", {}, ...paths(lines, { width: 1.3, opacity: Math.min(0.8, Math.max(0.35, 40 / lines.length)) }));
    const over = svg("g", { class: "axes" });
    axes.forEach((axis, index) => over.append(drawnAxis(axis, { x: xs[index], y, right, top, down, gap, chosen, index, order, redraw: () => chosen.changed?.() })));
    const ring = svg("circle", { r: 6, class: "ring", visibility: "hidden" });
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "parallel" }, drawn, over, ring);
    const shared = common(study, chosen, "All configurations, one line for each trial", "parallel");
    present(place, { picture, ...shared, legend: color.legend, gradient: color.gradient, note });
    const find = () => few.flatMap((trial, number) => lines[number].dim ? [] : units[number].map((at, index) => ({ px: xs[index], py: at === null ? low : y(at), trial: trial.n })));
    follow(place, { picture, ring, find, ...shared });
    return true;
  }

  // Labels stand on top of the lines. A drag along the axis brushes; one of its name moves it.
  function drawnAxis(axis, { x, y, right, top, down, gap, chosen, index, order, redraw }) {
    const made = svg("g", {});
    made.append(svg("path", { d: `M${x} ${top}v${down}`, class: "axis" }));
    for (const [at, text] of axis.scale.ticks(5)) {
      if (at >= -0.01 && at <= 1.01) made.append(svg("text", { x: x + 6, y: y(at) + 4, class: "halo" }, short(text, 14)));
    }
    const brush = chosen.brush?.[axis.name];
    if (brush) made.append(svg("rect", { x: x - 7, width: 14, y: y(brush[1]), height: Math.max(2, y(brush[0]) - y(brush[1])), class: "brush" }));
    const room = Math.max(8, Math.floor(gap / 6.2)), label = short(axis.label, Math.min(40, 2 * room));
    const last = [x + Math.min(right - 4, 3.7 * label.length), "end"];
    const [at, anchor] = index === 0 ? [4, "start"] : index < order.length - 1 ? [x, "middle"] : last;
    const name = svg("text", { x: at, y: top - 14 - (index % 2) * 16, "text-anchor": anchor, class: "halo name" }, label);
    made.append(name);
    if (chosen.isAlone) return made;
    const handle = svg("rect", { x: x - 11, width: 22, y: top - 6, height: down + 12, class: "handle" });
    made.append(handle);
    const unitAt = event => Math.min(1, Math.max(0, 1 - (event.clientY - handle.ownerSVGElement.getBoundingClientRect().top - top) / down));
    drag(handle, (from, to) => {
      const [low, high] = [unitAt(from), unitAt(to)].sort((one, other) => one - other);
      chosen.brush = { ...chosen.brush };
      if (high - low < 0.015) delete chosen.brush[axis.name];
      else chosen.brush[axis.name] = [low, high];
      redraw();
    });
    drag(name, (from, to) => {
      const moved = Math.round((to.clientX - from.clientX) / gap);
      const others = order.filter(each => each !== axis.name);
      others.splice(Math.max(0, index + moved), 0, axis.name);
      chosen.axisOrder = others;
      redraw();
    });
    return made;
  }

  function drag(handle, done) {
    handle.addEventListener("pointerdown", from => {
      handle.setPointerCapture(from.pointerId);
      from.preventDefault();
      handle.addEventListener("pointerup", to => done(from, to), { once: true });
    });
  }

  // --- the run -------------------------------------------------------------------------------------

  function timeline(place, study, chosen) {
    const ran = study.trials.flatMap(trial => (trial.a || []).filter(each => each.s !== null).flatMap(each => each.w.map(worker => ({ ...each, trial, worker }))));
    if (!ran.length) return false;
    const end = each => each.e ?? study.now;
    const [start, last] = [extent(ran.map(each => each.s))[0], extent(ran.map(end))[1]];
    const [unit, seconds] = UNITS.find(([, size]) => last - start >= 2 * size) || UNITS.at(-1);
    const lanes = [], labels = [];
    const byNode = Map.groupBy ? [...Map.groupBy(ran, each => each.worker)] : [...new Set(ran.map(each => each.worker))].map(worker => [worker, ran.filter(each => each.worker === worker)]);
    for (const [, mine] of byNode.sort((one, other) => one[1][0].d.localeCompare(other[1][0].d))) {
      const first = lanes.length, free = [], ending = [...mine].sort((one, other) => end(one) - end(other));
      let over = 0;
      for (const each of mine.sort((one, other) => one.s - other.s)) {
        // One that takes no time ends where it begins, and may not have a lane yet.
        while (ending[over].lane !== undefined && end(ending[over]) <= each.s) free.push(ending[over++].lane);
        each.lane = free.pop() ?? lanes.push(lanes.length > first ? "" : each.d) - 1;
      }
    }
    const count = lanes.length, x = linear(0, (last - start) / seconds, { margin: 0 });
    const y = { place: value => value, ticks: () => lanes.map((label, lane) => [1 - (lane + 0.5) / count, label]).filter(([, label]) => label), band: 1 / count };
    const kinds = [...new Set(ran.map(each => each.end))];
    const bars = ran.map(each => ({
      left: x.place((each.s - start) / seconds), right: x.place((end(each) - start) / seconds),
      top: 1 - (each.lane + 0.1) / count, bottom: 1 - (each.lane + 0.9) / count,
      color: ENDS[each.end] || COLORS.muted, dim: !isShown(each.trial, chosen) || !isBrushed(study, chosen, each.trial), trial: each.trial.n, name: String(each.trial.n), text: `${each.end}${each.why ? ": " + each.why : ""}\n${each.at}`,
    }));
    chart(place, {
      ...common(study, chosen, "Which worker trained which trial, and when", "timeline"),
      x, y, xLabel: `${unit} since the first trial started`, height: Math.min(640, 70 + 16 * Math.max(3, count)), legend: kinds.map(each => [each, ENDS[each] || COLORS.muted, "dot"]), marks: [{ bars }],
    });
    return true;
  }

  // Stacked bars over words, such as how many trials continued at each rung.
  function bars(place, study, chosen, { xLabel, yLabel, labels, parts, label }) {
    const sums = labels.map((_, index) => parts.reduce((sum, part) => sum + part.values[index], 0));
    const x = bands(labels.map((_, index) => index), labels), y = linear(0, Math.max(1, ...sums), { margin: 0, whole: true });
    const below = labels.map(() => 0), drawn = [];
    for (const part of parts) part.values.forEach((value, index) => {
      const [centre, half] = [x.place(index), 0.3 / labels.length], from = below[index];
      below[index] += value;
      if (value) drawn.push({ left: centre - half, right: centre + half, bottom: y.place(from), top: y.place(below[index]), color: COLORS[part.color], text: `${labels[index]}: ${value} ${part.name}` });
    });
    chart(place, { label, name: "bars", x, y, xLabel, yLabel, height: filling(place, 260), legend: parts.map(each => [each.name, COLORS[each.color], "dot"]), marks: [{ bars: drawn }] });
    return true;
  }

  // One bar of all device hours, by what they were used for.
  function uses(place, study, chosen, { parts, unit }) {
    const whole = parts.reduce((sum, each) => sum + each.hours, 0);
    const x = linear(0, 1, { margin: 0.03, percent: true });
    let at = 0;
    const bars = parts.map(({ name, hours }) => {
      const [left, part] = [at, hours / whole], shown = `${Math.round(100 * part)} %`;
      at += part;
      return { left: x.place(left), right: x.place(at), bottom: 0.1, top: 0.9, color: USES[name], name: shown, text: `${name}: ${shown}` };
    });
    chart(place, { label: `What the ${unit} were used for`, name: "uses", x, y: bands([0], [""]), xLabel: `share of the ${unit}`, height: 100, legend: parts.map(({ name }) => [name, USES[name], "dot"]), marks: [{ bars }] });
    return true;
  }

  // The values of trials at a rung against those at their ends.
  function agreement(place, study, chosen, { label, xLabel, yLabel, pairs }) {
    const [x, y] = [1, 2].map(side => fitting(pairs.map(each => each[side]), study.direction[study.metric]));
    const points = pairs.map(([trial, x, y]) => ({ x, y, trial, color: COLORS.complete }));
    chart(place, { ...common(study, chosen, label, "agreement"), x, y, xLabel, yLabel, height: 260, marks: [{ points }] });
    return true;
  }

  // A dot and whisker for each row, the first on top; those of the set of trials that is shown.
  function whiskers(place, study, chosen, { sets, label, xLabel }) {
    const rows = sets[chosen.states === "complete" ? "complete" : "all"] || Object.values(sets)[0];
    if (!rows || !rows.length) return false;
    const down = [...rows].reverse(), y = bands(down.map((_, index) => index), down.map(each => each[0]));
    const most = Math.max(...rows.flatMap(([, share, , high]) => [share, high]));
    chart(place, {
      label, name: label, x: linear(0, most, { margin: 0.03, percent: true }), y, xLabel, height: filling(place, 60 + 26 * rows.length),
      marks: [
        { lines: down.map(([, , low, high], index) => ({ at: [[low, index], [high, index]], color: COLORS.complete })), width: 2, opacity: 0.7 },
        { points: down.map(([name, share, low, high], index) => ({ x: share, y: index, color: COLORS.complete, text: `${name}: ${Math.round(100 * share)} % (${Math.round(100 * low)} to ${Math.round(100 * high)} %)` })) },
      ],
    });
    return true;
  }

  // Measured lines over numbers that mostly double, with their ranges and a dotted reference.
  function measured(place, study, chosen, { title, xLabel, series, reference, isLog }) {
    const known = series.flatMap(each => each.at).filter(each => each[1] !== null);
    const counts = [...new Set(series.flatMap(each => each.at.map(([at]) => at)))].sort((one, other) => one - other);
    const x = log(counts[0], counts.at(-1), { margin: 0.06 });
    const xAxis = { ...x, ticks: () => counts.map(each => [x.place(each), number(each)]) };
    const [low, high] = extent([...known.flatMap(([, middle, least, most]) => [least, most]), ...reference.map(each => each[1])]);
    const y = isLog && low > 0 ? log(low, high) : linear(0, high, { margin: 0.03 });
    const marks = [{ lines: [{ at: reference, color: COLORS.muted }], dash: "2 4", width: 1.5 }];
    series.forEach(({ name, at }, index) => {
      const color = SERIES[index % SERIES.length], found = at.filter(each => each[1] !== null);
      marks.push({ lines: found.map(([count, , least, most]) => ({ at: [[count, least], [count, most]], color })), width: 7, opacity: 0.35 });
      marks.push({ lines: [{ at: at.map(([count, middle]) => [count, middle ?? NaN]), color }], width: 2, opacity: 1 });
      marks.push({ points: found.map(([count, middle, , , isRing, text]) => ({ x: count, y: middle, color, shape: isRing ? "ring" : "dot", text: `${name}: ${text}` })) });
    });
    place.dataset.title = title;
    chart(place, { label: title, name: title, x: xAxis, y, xLabel, yLabel: title, height: 280, legend: series.map(({ name }, index) => [name, SERIES[index % SERIES.length], "line"]), marks });
    return true;
  }

  // The best values of several studies so far, over what only grows. The texts name the trials.
  function steps(place, study, chosen, { label, xLabel, yLabel, isWhole, direction, series }) {
    const all = series.flatMap(each => each.at);
    if (!all.length) return false;
    const marks = series.flatMap(({ at, texts }, index) => {
      const { color, dash } = lineStyle(index);
      return [
        { lines: [{ at, color }], isStep: true, width: 2, opacity: 1, dash },
        { points: texts.map((text, each) => ({ x: at[each][0], y: at[each][1], color, text })) },
      ];
    });
    const x = linear(0, extent(all.map(([each]) => each))[1], { whole: isWhole });
    chart(place, { label, name: label, x, y: fitting(all.map(([, each]) => each), direction), xLabel, yLabel, height: 260, marks });
    return true;
  }

  // The colour and dash of one of several lines; `style` is the dash in CSS.
  function lineStyle(index) {
    const [style, dash] = [["solid"], ["dashed", "7 5"], ["dotted", "2 4"]][Math.floor(index / SERIES.length) % 3];
    return { color: SERIES[index % SERIES.length], dash, style };
  }

  const KINDS = { steps, history, curves, front, slices, contour, parallel, timeline, bars, uses, agreement, whiskers, measured };

  // Draws what an element asks for: the kind, and what it needs besides the study's data.
  function draw(place, study, chosen) {
    const [kind, given] = JSON.parse(place.dataset.figure);
    return KINDS[kind](place, study, chosen, given);
  }

  return { draw, comparison, lineStyle };
})();
