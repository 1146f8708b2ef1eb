"use strict";
// Figures as SVG: scales, axes, marks, what is pointed at, and pictures of them.
window.hptuneCharts ??= (() => {
  const COLORS = { complete: "#2f6fde", pruned: "#c47b17", best: "#1a9850", median: "#8e5fc9", failed: "#d23b3b", running: "#0b8f8f", paused: "#a58a5f", muted: "#767b84" };
  const SERIES = [COLORS.complete, COLORS.pruned, COLORS.best, COLORS.median, COLORS.failed, COLORS.muted, "#0b8f8f", "#b8578f"];
  const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
  const LEAST_DRAG = 8;  // pixels of a side, from which on a drag is no click
  const LINES_OF_PATH = 100;
  const NEAR = 14;  // pixels between the pointer and a mark that it points at

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    return filled(made, attributes, children);
  }

  function svg(name, attributes = {}, ...children) {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }

  function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // Four significant digits, as `number` of text.py; measured values have zeros at the end: 1.980e-05.
  function number(value, isMeasured = false) {
    const size = Math.abs(value), digits = shown => isMeasured ? shown : String(Number(shown));
    if (Number.isInteger(value) && size < 1e7 && (!isMeasured || size >= 100)) return String(value);
    if (size >= 1e4 && size < 1e7) return value.toFixed(0);
    if (!Number.isFinite(value)) return String(value);
    if (size === 0 || (size >= 1e-4 && size < 1e4)) return digits(value.toPrecision(4));
    const [first, power] = value.toExponential(3).split("e");
    return `${digits(first)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }

  function words(value) {
    if (value === true) return "True";
    if (value === false) return "False";
    if (value === null || value === undefined) return "None";
    return typeof value === "number" ? number(value) : String(value);
  }

  function short(text, most) {
    return text.length <= most ? text : text.slice(0, most / 2 - 1) + "…" + text.slice(-most / 2);
  }

  // --- scales: where a value is between 0 and 1, and what an axis writes where -------------------

  function linear(low, high, { margin = 0.04, whole = false, marks = 0, percent = false } = {}) {
    if (!(high > low)) [low, high] = [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2];
    const room = margin * (high - low);
    const from = low - room, width = high - low + 2 * room;
    const place = value => (value - from) / width;
    const ticks = count => {
      const rough = (high - low) / Math.max(1, marks || count), power = 10 ** Math.floor(Math.log10(rough));
      let step = power * [1, 2, 5, 10].find(each => each * power >= rough * 0.7);
      if (whole) step = Math.max(1, Math.round(step));
      const found = [];
      for (let at = Math.ceil(from / step); at * step <= from + width; at++) {
        const value = Number((at * step).toPrecision(12));
        if (!whole || value >= low) found.push([place(value), percent ? Math.round(100 * value) + " %" : number(value)]);
      }
      return found;
    };
    const at = unit => from + unit * width;
    return { place, ticks, at, within: (one, other) => linear(at(one), at(other), { margin: 0, whole, marks, percent }) };
  }

  function log(low, high, { margin = 0.04 } = {}) {
    const on = linear(Math.log10(low), Math.log10(high), { margin });
    const ticks = count => {
      const [first, last] = [on.at(0), on.at(1)];
      const decades = last - first, found = [];
      const factors = decades > 2 ? [1] : decades > 0.8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
      const every = Math.ceil(decades / count / 1.6);
      for (let power = Math.floor(first); power <= last; power++) {
        if (decades > 2 && power % every) continue;
        for (const factor of factors) {
          const at = on.place(Math.log10(factor) + power);
          if (at >= 0 && at <= 1) found.push([at, number(Number((factor * 10 ** power).toPrecision(3)))]);
        }
      }
      return found.length > 1 ? found : linear(low, high).ticks(count).map(([, label]) => [on.place(Math.log10(Number(label))), label]);
    };
    const at = unit => 10 ** on.at(unit);
    return { place: value => value > 0 ? on.place(Math.log10(value)) : NaN, ticks, at, within: (one, other) => log(at(one), at(other), { margin: 0 }) };
  }

  // One band for each value, such as that of a choice.
  function bands(values, labels = values.map(words)) {
    const places = new Map(values.map((each, index) => [each, (index + 0.5) / values.length]));
    return {
      place: value => places.has(value) ? places.get(value) : NaN,
      ticks: () => labels.map((label, index) => [(index + 0.5) / values.length, label]),
      band: 1 / values.length,
      at: unit => values[Math.min(values.length - 1, Math.max(0, Math.floor(unit * values.length)))],
    };
  }

  // --- drawing -----------------------------------------------------------------------------------

  const SHAPES = {
    dot: (x, y) => `M${x} ${y}h0`,
    triangle: (x, y) => `M${x - 4} ${y + 3}l4 -7l4 7z`,
    cross: (x, y) => `M${x - 3.5} ${y - 3.5}l7 7m0 -7l-7 7`,
    lower: (x, y) => `M${x - 4} ${y - 4}l4 5l4 -5`,
    higher: (x, y) => `M${x - 4} ${y + 4}l4 -5l4 5`,
    ring: (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0`,
  };

  function round(value) {
    return Math.round(value * 10) / 10;
  }

  // One path for marks that look alike: thousands of marks are then as quick as a few. Browsers need
  // much longer for one path of many lines that cross than for several with a part of them each.
  function paths(marks, look, most = Infinity) {
    const groups = new Map(), found = [];
    for (const mark of marks) {
      const key = [mark.dim ? COLORS.muted : mark.color, mark.dim, mark.shape].join();
      let group = groups.get(key);
      if (!group || group.parts.length >= most) {
        groups.set(key, group = { ...mark, parts: [] });
        found.push(group);
      }
      group.parts.push(mark.path);
    }
    found.sort((one, other) => Boolean(other.dim) - Boolean(one.dim));
    return found.map(each => svg("path", { d: each.parts.join(""), ...look(each) }));
  }

  function pointPaths(points) {
    return paths(points, ({ shape = "dot", color, dim }) => {
      const paint = dim ? COLORS.muted : color, opacity = dim ? 0.2 : 0.75;
      if (shape === "triangle") return { fill: paint, opacity };
      if (shape === "ring") return { fill: "var(--card)", stroke: paint, "stroke-width": 2, opacity };
      const width = shape === "dot" ? 7 : 2;
      return { fill: "none", stroke: paint, "stroke-width": width, "stroke-linecap": "round", opacity };
    });
  }

  function linePaths(lines, { width = 1.2, dash, opacity = 0.6 }) {
    return paths(lines, ({ color, dim }) => ({
      fill: "none", stroke: dim ? COLORS.muted : color, "stroke-width": width, "stroke-dasharray": dash,
      "stroke-linejoin": "round", opacity: dim ? 0.12 : opacity,
    }), LINES_OF_PATH);
  }

  // Draws a figure of two axes into an element, and lets marks be pointed at.
  // Marks: points, lines (with `at`, a list of points), bars and images (in shares of the axes).
  function chart(place, given) {
    const { x: wholeX, y: wholeY, xLabel = "", yLabel = "", height = 300, label, legend = [], gradient, note = "", marks, tip, pick, name } = given;
    const zoom = zooms.get(label), x = zoomed(wholeX, zoom?.x), y = zoomed(wholeY, zoom?.y);
    const acrossOf = share => x === wholeX ? share : x.place(wholeX.at(share)), upOf = share => y === wholeY ? share : y.place(wholeY.at(share));
    const width = Math.max(place.clientWidth || 600, 200);
    const yTicks = y.ticks(Math.max(3, Math.floor(height / 50)));
    const left = 12 + (yLabel ? 18 : 0) + 7.2 * Math.max(0, ...yTicks.map(([, text]) => short(text, 24).length));
    const right = 12, top = legend.length || gradient ? 8 : 20;
    const inner = width - left - right;
    let xTicks = x.ticks(Math.max(2, Math.floor(inner / 75))).map(([at, text]) => [at, short(text, 24)]);
    const longest = Math.max(0, ...xTicks.map(([, text]) => text.length));
    const isSlanted = longest * 6.5 > inner / Math.max(1, xTicks.length) && x.band;
    if (!x.band) while (xTicks.length > 2 && xTicks.length * (longest * 6.5 + 10) > inner) xTicks = xTicks.filter((_, index) => index % 2 === 0);
    if (isSlanted) xTicks = xTicks.map(([at, text]) => [at, short(text, Math.max(6, Math.floor((left + at * inner) / 7)))]);
    const slantRoom = isSlanted ? Math.min(70, 4 + 4.2 * longest) : 0;
    const bottom = (xTicks.length ? 20 : 6) + slantRoom + (xLabel ? 17 : 0);
    const down = height - top - bottom;
    const px = at => round(left + at * inner), py = at => round(top + (1 - at) * down);

    const axes = svg("g", { class: "axes" });
    for (const [at, text] of xTicks) {
      axes.append(svg("line", { x1: px(at), x2: px(at), y1: top, y2: top + down, class: x.band ? "tick" : "grid" }));
      const turn = isSlanted ? { transform: `rotate(-28 ${px(at)} ${top + down + 14})`, "text-anchor": "end" } : { "text-anchor": "middle" };
      axes.append(svg("text", { x: px(at), y: top + down + 15, ...turn }, text));
    }
    for (const [at, text] of yTicks) {
      axes.append(svg("line", { x1: left, x2: left + inner, y1: py(at), y2: py(at), class: y.band ? "tick" : "grid" }));
      axes.append(svg("text", { x: left - 6, y: py(at) + 4, "text-anchor": "end" }, short(text, 24)));
    }
    axes.append(svg("path", { d: `M${left} ${top}v${down}h${inner}`, class: "axis" }));
    if (xLabel) axes.append(svg("text", { x: left + inner / 2, y: height - 4, "text-anchor": "middle" }, short(xLabel, 40)));
    if (yLabel) axes.append(svg("text", { transform: `translate(12 ${top + down / 2}) rotate(-90)`, "text-anchor": "middle" }, short(yLabel, 40)));

    const isIn = each => each.px >= left - 1 && each.px <= left + inner + 1 && each.py >= top - 1 && each.py <= top + down + 1;
    const drawn = svg("g"), found = [];  // what can be pointed at; found when somebody points
    for (const mark of marks) {
      if (mark.points) {
        const points = mark.points.map(each => ({ ...each, px: px(x.place(each.x) + (each.shift || 0)), py: py(y.place(each.y)) }))
          .filter(isIn);
        for (const each of points) each.path = SHAPES[each.shape || "dot"](each.px, each.py);
        found.push(() => points);
        drawn.append(...pointPaths(points));
      } else if (mark.lines) {
        const lines = [];
        for (const line of mark.lines) {
          let path = "", before = null;
          for (const [ax, ay] of line.at) {
            const lx = px(x.place(ax)), ly = py(y.place(ay));
            if (!Number.isFinite(lx) || !Number.isFinite(ly)) { before = null; continue; }
            path += before === null ? `M${lx} ${ly}` : mark.isStep ? `H${lx}V${ly}` : `L${lx} ${ly}`;
            before = ly;
          }
          lines.push({ ...line, path });
        }
        const known = mark.lines.filter(each => each.trial !== undefined && !each.dim);
        found.push(() => known.flatMap(({ at, trial }) => at.map(([ax, ay]) => ({ px: px(x.place(ax)), py: py(y.place(ay)), trial }))));
        drawn.append(...linePaths(lines, mark));
      } else if (mark.bars) {
        const bars = mark.bars.map(bar => {
          const [x0, x1, y0, y1] = [px(acrossOf(bar.left)), px(acrossOf(bar.right)), py(upOf(bar.bottom)), py(upOf(bar.top))];
          const box = { x: x0, y: y1, width: Math.max(1, x1 - x0), height: Math.max(1, y0 - y1) };
          drawn.append(svg("rect", { ...box, fill: bar.dim ? COLORS.muted : bar.color, opacity: bar.dim ? 0.2 : bar.opacity ?? 0.85 }));
          if (bar.name && !bar.dim && box.width > 7 * bar.name.length + 4 && box.height >= 11) drawn.append(svg("text", { x: box.x + box.width / 2, y: box.y + box.height / 2 + 4, "text-anchor": "middle", class: "name" }, bar.name));
          return { px: box.x + box.width / 2, py: box.y + box.height / 2, box, ...bar };
        });
        found.push(() => bars);
      } else if (mark.image) {
        const [x0, x1, y0, y1] = [acrossOf(mark.left), acrossOf(mark.right), upOf(mark.bottom), upOf(mark.top)];
        drawn.append(svg("image", { href: mark.image, x: px(x0), y: py(y1), width: px(x1) - px(x0), height: py(y0) - py(y1), preserveAspectRatio: "none" }));
      }
    }
    const clip = `clip-${Math.random().toString(36).slice(2)}`;
    drawn.setAttribute("clip-path", `url(#${clip})`);
    const room = svg("clipPath", { id: clip }, svg("rect", { x: left - 4, y: top - 4, width: inner + 8, height: down + 8 }));
    const ring = svg("circle", { r: 7, class: "ring", visibility: "hidden" });
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, room, axes, drawn, ring);
    present(place, { picture, label, legend, gradient, note, name });
    const show = (across, up) => {
      zooms.set(label, { x: wholeX.within && across.map(x.at), y: wholeY.within && up.map(y.at) });
      chart(place, given);
    };
    const whole = () => { zooms.delete(label); chart(place, given); };
    if (zoom) place.append(element("button", { type: "button", class: "whole", onclick: () => { whole(); place.focus(); } }, "Show the whole figure"));
    const at = event => {
      const from = picture.getBoundingClientRect();
      return [(event.clientX - from.left - left) / inner, 1 - (event.clientY - from.top - top) / down].map(each => Math.min(1, Math.max(0, each)));
    };
    select(picture, (one, other) => show(...[0, 1].map(axis => [at(one)[axis], at(other)[axis]].sort((low, high) => low - high))));
    const magnify = (hit, factor) => {
      const centre = hit ? [(hit.px - left) / inner, 1 - (hit.py - top) / down] : [0.5, 0.5];
      if (factor > 1) show(...centre.map(each => [each - 0.5 / factor, each + 0.5 / factor]));
      else if (zoom) whole();
    };
    follow(place, { picture, ring, find: () => found.flatMap(each => each()).filter(each => each.box || isIn(each)), tip, pick, magnify });
  }

  // What of each figure is shown, by its label: the ends of its axes.
  const zooms = new Map();

  function zoomed(scale, ends) {
    return ends && scale.within ? scale.within(...ends.map(scale.place)) : scale;
  }

  // Calls back when a mouse has drawn a rectangle; the click that follows picks nothing.
  function select(picture, done) {
    picture.addEventListener("pointerdown", from => {
      if (from.pointerType !== "mouse" || from.button) return;
      from.preventDefault();
      picture.setPointerCapture(from.pointerId);
      const box = svg("rect", { class: "brush" }), place = picture.getBoundingClientRect();
      picture.append(box);
      const sizes = to => [Math.abs(to.clientX - from.clientX), Math.abs(to.clientY - from.clientY)];
      const move = to => {
        const [width, height] = sizes(to);
        filled(box, { x: Math.min(from.clientX, to.clientX) - place.left, y: Math.min(from.clientY, to.clientY) - place.top, width, height }, []);
      };
      picture.addEventListener("pointermove", move);
      picture.addEventListener("pointerup", to => {
        picture.removeEventListener("pointermove", move);
        box.remove();
        if (Math.min(...sizes(to)) < LEAST_DRAG) return;
        picture.addEventListener("click", event => event.stopImmediatePropagation(), { capture: true, once: true });
        done(from, to);
      }, { once: true });
    });
  }

  // Puts a picture into its element, with its legend outside of the data.
  function present(place, { picture, label, legend = [], gradient, note = "", name = "figure" }) {
    place.replaceChildren();
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", label);
    if (legend.length || gradient) place.append(legendOf(legend, gradient));
    place.append(picture);
    if (note) place.append(element("p", { class: "note" }, note));
    const save = element("button", { type: "button", class: "save", title: "Save as a picture (SVG)", "aria-label": `Save the figure: ${label}` }, "⤓");
    save.addEventListener("click", () => download(`${name}.svg`, "image/svg+xml", pictureText(picture)));
    place.append(save);
  }

  function legendOf(legend = [], gradient = null) {
    const made = element("div", { class: "legend" });
    for (const [text, color, shape = "dot"] of legend) {
      const mark = svg("svg", { width: 16, height: 12, "aria-hidden": "true" });
      const line = { d: "M1 6h14", stroke: color, "stroke-width": 2.5, "stroke-dasharray": shape === "dashed" ? "4 3" : null };
      const path = SHAPES[shape] ? SHAPES[shape](8, 6) : "";
      mark.append(path ? pointPaths([{ path, shape, color }])[0] : svg("path", line));
      made.append(element("span", {}, mark, ` ${text}`));
    }
    if (gradient) {
      const bar = element("span", { class: "gradient" });
      bar.style.background = `linear-gradient(to right, ${VIRIDIS.join()})`;
      made.append(element("span", {}, `${gradient.label}: ${gradient.low} `, bar, ` ${gradient.high}`));
    }
    return made;
  }

  // A picture that stands alone: the page's style and colours go with it.
  function pictureText(picture) {
    const copy = picture.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const style = "text{font:12px sans-serif;fill:#5b626d}.grid{stroke:#767b84;opacity:.25}.tick{stroke:none}.axis{fill:none;stroke:#767b84}text.name{font-size:11px;fill:#111}.halo{stroke:#fff;stroke-width:3;paint-order:stroke}.ring{display:none}";
    copy.prepend(svg("style", {}, style), svg("rect", { width: "100%", height: "100%", fill: "#fff" }));
    return new XMLSerializer().serializeToString(copy).replaceAll("var(--card)", "#fff");
  }

  function download(name, type, text) {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Says what the pointer is near; a click or Enter opens its trial. Arrow keys go from mark to mark,
  // + shows what is around it larger, and - the whole figure.
  function follow(place, { picture, ring, find, tip = () => "", pick = () => {}, magnify = () => {} }) {
    let known = null;
    const all = () => known ||= find();
    const told = element("div", { class: "tip", role: "status", hidden: true });
    place.append(told);
    place.tabIndex = 0;
    let current = -1;

    // The next mark from left to right.
    function next(step) {
      const hits = all();
      const order = [...hits.keys()].sort((one, other) => hits[one].px - hits[other].px || hits[one].py - hits[other].py);
      return order.length ? order[(order.indexOf(current) + step + order.length) % order.length] : -1;
    }

    function show(index) {
      current = index;
      const hit = all()[index];
      told.hidden = !hit;
      ring.setAttribute("visibility", hit && !hit.box ? "visible" : "hidden");
      picture.style.cursor = hit && hit.trial !== undefined ? "pointer" : "";
      if (!hit) return;
      ring.setAttribute("cx", hit.px);
      ring.setAttribute("cy", hit.py);
      told.textContent = [hit.text, hit.trial === undefined ? "" : tip(hit.trial)].filter(Boolean).join("\n");
      const offset = picture.offsetTop ?? 0;
      const most = place.clientWidth - told.offsetWidth - 4;
      told.style.left = `${Math.max(0, Math.min(most, hit.px + 12))}px`;
      told.style.top = `${hit.py + offset + picture.getBoundingClientRect().top - place.getBoundingClientRect().top + 14}px`;
    }

    function nearest(event) {
      const from = picture.getBoundingClientRect();
      const [ex, ey] = [event.clientX - from.left, event.clientY - from.top];
      let found = -1, least = NEAR ** 2;
      all().forEach((hit, index) => {
        const isIn = hit.box && ex >= hit.box.x && ex <= hit.box.x + hit.box.width && ey >= hit.box.y && ey <= hit.box.y + hit.box.height;
        const far = isIn ? 0 : (hit.px - ex) ** 2 + (hit.py - ey) ** 2;
        if (far < least) [found, least] = [index, far];
      });
      return found;
    }

    picture.addEventListener("pointermove", event => show(nearest(event)));
    picture.addEventListener("pointerleave", () => show(-1));
    picture.addEventListener("click", event => {
      const hit = all()[nearest(event)];
      if (hit && hit.trial !== undefined) pick(hit.trial);
    });
    place.addEventListener("blur", () => show(-1));
    place.onkeydown = event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.target !== place || event.ctrlKey || event.metaKey || event.altKey) return;
      if (step) {
        event.preventDefault();
        show(current < 0 && step < 0 ? next(0) : next(step));
      } else if (event.key === "Enter" && all()[current]?.trial !== undefined) pick(all()[current].trial);
      else if (event.key === "Escape") show(-1);
      else if ("+=".includes(event.key)) magnify(all()[current], 2);
      else if (event.key === "-") magnify(null, 0);
    };
  }

  return { COLORS, SERIES, VIRIDIS, element, svg, number, words, short, linear, log, bands, chart, legendOf, present, follow, paths: linePaths, download };
})();
