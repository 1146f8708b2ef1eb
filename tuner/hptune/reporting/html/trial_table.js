"use strict";
// The table of trials: filter, sort, columns, side by side, and what is shown as a file.
const hptuneTable = (() => {
  const { SERIES, element, number, words, download } = hptuneCharts;
  const { isBrushed, isInfeasible, isShown } = hptuneTrials;
  const FIRST_ROWS = 25, MORE_ROWS = 200, FIRST_PARAMETERS = 8;

  function duration(seconds) {
    if (!Number.isFinite(seconds)) return "";
    const whole = Math.floor(seconds), two = each => String(each).padStart(2, "0");
    if (whole < 60) return seconds > 0 && whole < 1 ? "<1s" : `${whole}s`;
    if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
    return `${Math.floor(whole / 86400)}d${two(Math.floor(whole % 86400 / 3600))}h`;
  }

  const energy = kwh => !Number.isFinite(kwh) ? "" : kwh < 0.1 ? `${number(1000 * kwh, true)} Wh` : `${number(kwh, true)} kWh`;

  function shown(value, isMeasured = false) {
    return value === undefined || value === null ? "–" : typeof value === "number" ? number(value, isMeasured) : words(value);
  }

  // What a table can show of a trial; `get` is what it is sorted by.
  function columnsOf(study) {
    const taken = new Set([...study.columns.map(each => each.title), study.step, ...study.metrics]);
    const goals = Object.keys(study.direction), order = study.order.all.slice(0, FIRST_PARAMETERS);
    const several = {
      v: study.metrics.map(name => ({ key: name, isFirst: goals.includes(name), get: each => each.v[name], text: each => shown(each.v[name], true) })),
      p: study.space.map(({ name, label }) => ({ key: taken.has(label) ? `${label} (hyperparameter)` : label, isFirst: order.includes(name), get: each => each.p[name], text: each => name in each.p ? words(each.p[name]) : "–" })),
    };
    const known = study.columns.filter(each => !each.isRare || study.trials.some(one => one[each.name]));
    return known.flatMap(({ name, title, isFirst }) => several[name] || [{
      key: name === "step" ? study.step : title, label: title, isFirst, get: each => each[name],
      text: name.endsWith("seconds") ? each => duration(each[name]) || "–" : name.endsWith("kwh") ? each => energy(each[name]) || "–" : null,
    }]);
  }

  function firstColumns(study) {
    const reason = study.trials.some(each => each.s === "failed") ? ["reason"] : [];
    const written = ["tags", "notes"].filter(name => study.trials.some(each => each[name]));
    return new Set([...columnsOf(study).filter(each => each.isFirst).map(each => each.key), ...written, ...reason]);
  }

  // A filter: words and comparisons, all of which must hold. Returns a test, and what it does not know.
  // What has spaces stands in quotes, and hp.NAME is a hyperparameter that has another column's name.
  function filterOf(text, study, metric) {
    const tests = [], unknown = [];
    const columns = columnsOf(study), bare = each => each.replaceAll('"', "");
    const hyperparameter = name => study.space.some(each => each.name === name) && { get: each => each.p[name] };
    const named = name => name.startsWith("hp.") ? hyperparameter(name.slice(3)) : name === "value" ? { get: each => each.v[metric] } : columns.find(each => each.key === name) || columns.find(each => each.key.startsWith(name));
    for (const part of text.match(/(?:"[^"]*"|[^\s"])+/g) || []) {
      const [, name, sign, given] = (part.match(/^((?:"[^"]*"|[^<>=!"])+)(<=|>=|!=|<|>|=)(.+)$/) || []).map(bare);
      if (!name) {
        const word = bare(part).toLowerCase();
        const has = each => [each.s, each.origin, String(each.n), ...(each.tags || "").split(" "), ...Object.values(each.p).map(words)].some(one => String(one).toLowerCase() === word) || (each.reason || "").toLowerCase().includes(word);
        if (study.trials.some(has)) tests.push(has);
        else unknown.push(part);
        continue;
      }
      const column = named(name);
      if (!column) { unknown.push(part); continue; }
      const limit = Number(given);
      tests.push(each => {
        const value = column.get(each);
        if (value === undefined || value === null) return false;
        if (sign === "=" || sign === "!=") {
          const isEqual = typeof value === "number" && Number.isFinite(limit) ? value === limit : words(value).toLowerCase() === given.toLowerCase();
          return isEqual === (sign === "=");
        }
        if (!Number.isFinite(limit) || typeof value !== "number") return false;
        return { "<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit }[sign];
      });
    }
    return { test: tests.length ? each => tests.every(test => test(each)) : null, unknown };
  }

  function rowsOf(study, chosen, table) {
    if (!table.sort) Object.assign(table, { sort: study.metric, isDown: study.direction[study.metric] === "max" });  // the best first
    const column = columnsOf(study).find(each => each.key === table.sort) || columnsOf(study)[0];
    const rows = study.trials.filter(each => isShown(each, chosen) && isBrushed(study, chosen, each));
    const side = table.isDown ? -1 : 1, isMetric = study.metrics.includes(column.key);
    return rows.sort((one, other) => {
      const [left, right] = [column.get(one), column.get(other)];
      const isLeft = left === undefined || left === null, isRight = right === undefined || right === null;
      if (isLeft || isRight) return isLeft - isRight;
      const isApart = isMetric && (one.s === "complete") !== (other.s === "complete");
      if (isApart) return one.s === "complete" ? -1 : 1;  // others have trained less
      if (isMetric && isInfeasible(one) !== isInfeasible(other)) return isInfeasible(one) ? 1 : -1;
      const order = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right));
      return order * side || one.n - other.n;
    });
  }

  // --- drawing -------------------------------------------------------------------------------------

  function draw(place, study, chosen, table, current, changed) {
    table.columns ||= firstColumns(study);
    const columns = columnsOf(study).filter(each => table.columns.has(each.key));
    const rows = rowsOf(study, chosen, table), most = Math.max(table.most || FIRST_ROWS, 1 + rows.findIndex(each => each.n === current));
    const focused = document.activeElement?.dataset?.key;
    const scroll = place.querySelector(".scroll");
    const at = scroll ? [scroll.scrollLeft, scroll.scrollTop] : [0, 0];
    const isOpen = place.querySelector("details")?.open;

    const head = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "unseen" }, "compare")));
    const isNumber = new Map(columns.map(({ key, get }) => [key, rows.some(each => typeof get(each) === "number")]));
    for (const { key, label } of columns) {
      const sign = table.sort === key ? (table.isDown ? " ▾" : " ▴") : "";
      const sort = () => { Object.assign(table, { isDown: table.sort === key && !table.isDown, sort: key }); changed(); };
      const button = element("button", { type: "button", class: "plain", "data-key": `sort ${key}`, onclick: sort }, ...(label || key).split(/(?<=_)/).flatMap(part => [part, element("wbr")]), sign);
      head.append(element("th", { scope: "col", class: isNumber.get(key) ? "number" : null, "aria-sort": sign ? (table.isDown ? "descending" : "ascending") : null }, button));
    }
    const body = element("tbody");
    for (const each of rows.slice(0, most)) {
      const compare = () => { table.compared.has(each.n) ? table.compared.delete(each.n) : table.compared.add(each.n); changed(); };
      const check = element("input", { type: "checkbox", checked: table.compared.has(each.n), "data-key": `compare ${each.n}`, "aria-label": `Compare trial ${each.n}`, onchange: compare });
      const row = element("tr", { class: study.front.includes(each.n) ? "best" : null, "aria-current": each.n === current ? "true" : null }, element("td", {}, check));
      for (const { key, get, text } of columns) {
        const value = text ? text(each) : shown(get(each));
        const cell = key === "trial" ? element("a", { href: `#trial-${each.n}`, "data-key": `trial ${each.n}` }, value) : value;
        row.append(element("td", { class: key === "reason" || key === "notes" ? "reason" : isNumber.get(key) ? "number" : null }, cell));
      }
      body.append(row);
    }
    const more = () => { table.most = most + MORE_ROWS; changed(); };
    const left = rows.length - most;
    place.replaceChildren(
      tools(study, columns, rows, table, changed, isOpen),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All trials" }, element("table", {}, element("thead", {}, head), body)),
      left > 0 ? element("button", { type: "button", "data-key": "more", onclick: more }, `Show ${Math.min(left, MORE_ROWS)} more of ${rows.length}`) : "",
    );
    place.append(...compared(study, chosen, table, changed));
    const drawn = place.querySelector(".scroll");
    [drawn.scrollLeft, drawn.scrollTop] = at;
    if (table.current !== current) place.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
    table.current = current;
    if (focused) [...place.querySelectorAll("[data-key]")].find(each => each.dataset.key === focused)?.focus({ preventScroll: true });
    return true;
  }

  function tools(study, columns, rows, table, changed, isOpen) {
    const boxes = columnsOf(study).map(({ key }) => {
      const toggle = () => { table.columns.has(key) ? table.columns.delete(key) : table.columns.add(key); changed(); };
      return element("label", {}, element("input", { type: "checkbox", checked: table.columns.has(key), "data-key": `column ${key}`, onchange: toggle }), ` ${key}`);
    });
    const pick = element("details", { open: Boolean(isOpen) }, element("summary", {}, "Columns"), element("div", { class: "columns" }, ...boxes));
    return element("div", { class: "tools" },
      element("span", { role: "status" }, `${rows.length} of ${study.trials.length} trials`), pick,
      element("button", { type: "button", "data-key": "csv", onclick: () => download("trials.csv", "text/csv", csv(columns, rows)) }, "CSV"),
      element("button", { type: "button", "data-key": "json", onclick: () => download("trials.json", "application/json", json(columns, rows)) }, "JSON"));
  }

  // A text that a spreadsheet would run as a formula begins with an apostrophe.
  function csv(columns, rows) {
    const cell = value => {
      if (value === undefined || value === null) return "";
      const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : typeof value === "boolean" ? words(value) : String(value);
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    return [columns.map(each => cell(each.key)), ...rows.map(row => columns.map(each => cell(each.get(row))))].map(each => each.join(",")).join("\r\n") + "\r\n";
  }

  function json(columns, rows) {
    return JSON.stringify(rows.map(row => Object.fromEntries(columns.map(each => [each.key, each.get(row) ?? null]))), null, 1) + "\n";
  }

  // --- side by side ----------------------------------------------------------------------------------

  function compared(study, chosen, table, changed) {
    const found = [...table.compared].map(each => study.byNumber.get(each)).filter(Boolean);
    if (!found.length) return [];
    const clear = () => { table.compared.clear(); changed(); };
    const heads = found.map((each, index) => element("th", { scope: "col", style: `border-bottom: 3px solid ${SERIES[index % SERIES.length]}` }, element("a", { href: `#trial-${each.n}` }, `trial ${each.n}`)));
    const rows = columnsOf(study).filter(each => !["trial", "reason"].includes(each.key)).map(({ key, get, text }) => {
      const cells = found.map(each => text ? text(each) : shown(get(each)));
      const differs = new Set(cells).size > 1;
      return element("tr", { class: differs ? "differs" : null }, element("th", { scope: "row" }, key + (differs ? " ≠" : "")), ...cells.map(each => element("td", {}, each)));
    });
    const curves = element("div", { class: "figure", "data-figure": JSON.stringify(["comparison", {}]) });
    return [element("div", { class: "compare" },
      element("h3", {}, `${found.length === 1 ? "One trial is" : found.length + " trials are"} chosen `, element("button", { type: "button", "data-key": "clear", onclick: clear }, "Clear")),
      element("div", { class: "side" }, element("div", { class: "scroll", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows))), curves))];
  }

  return { draw, filterOf, rowsOf, duration, shown };
})();
