// Makes the pages comfortable: local times, charts, filters in place, copying, reloading. Without it every page shows
// the same facts as text and tables. It reads nothing but the page, and asks nobody but the page's own server.
(function () {
  "use strict";
  const root = document.documentElement;
  const main = () => document.getElementById("content");
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  let plots = [];
  root.classList.add("js");

  // -- times in the reader's time zone

  const two = (number) => String(number).padStart(2, "0");
  const clock = (date) => two(date.getHours()) + ":" + two(date.getMinutes());
  const days = (date) => Math.floor((date.getTime() / 60000 - date.getTimezoneOffset()) / 1440);
  const month = new Intl.DateTimeFormat("en", { month: "short" });
  const zone = (date) => {
    // British English names zones of Europe, American English those of America: CET, PST.
    const names = ["en-GB", "en-US"].map((language) =>
      new Intl.DateTimeFormat(language, { timeZoneName: "short" }).formatToParts(date).find((one) => one.type === "timeZoneName").value);
    return names.find((name) => !/^(GMT|UTC)./.test(name)) || names[0];
  };
  const now = () => new Date(Number(root.dataset.now) * 1000);
  const when = (date) => {
    const away = days(now()) - days(date);
    const day = away === 0 ? "" : away === 1 ? "Yesterday " : date.getDate() + " " + month.format(date) + " ";
    return day + clock(date);
  };

  function localTimes(part) {
    for (const element of part.querySelectorAll("time[data-form]")) {
      const date = new Date(element.dateTime);
      if (isNaN(date)) continue;
      if (element.dataset.form === "at") element.textContent = when(date);
      if (element.dataset.form === "clock") {
        element.textContent = clock(date) + ":" + two(date.getSeconds()) + " " + zone(date);
        element.title = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
      } else element.title = when(date) + " " + zone(date);
    }
  }

  // -- charts

  const numbers = (text) => (text ? text.split(",").map((one) => (one === "" ? null : Number(one))) : []);
  const hasValues = (values) => values.some((one) => one !== null);

  // bands: from the least to the most of a line's time; a line without a least begins its band itself.
  const CHARTS = {
    nodes: { height: 230, least: 4, marks: true, series: [["nodes", "ready", "--blue", true], ["wanted", "wanted", "--muted", false, [5, 4]]],
      bands: [["nodes", "nodesLeast", "nodesMost", "--blueband"]] },
    shares: { height: 170, most: 100, unit: "%", series: [["cpu", "cpu", "--blue"], ["memory", "memory", "--orange"]],
      bands: [["cpu", "", "cpuMost", "--blueband"], ["memory", "", "memoryMost", "--orangeband"]] },
    pods: { height: 170, least: 4, series: [["pending", "waiting", "--orange", true]] },
    cost: { height: 170, money: true, series: [["cost", "an hour", "--blue"]], bands: [["cost", "", "costMost", "--blueband"]] },
    size: { height: 190, least: 4, series: [["nodes", "nodes", "--blue", true]] },
  };

  function shownValue(kind, unit, value) {
    if (value === null || value === undefined) return "–";
    if (CHARTS[kind].money) return unit + value.toFixed(2);
    return value + (CHARTS[kind].unit || "");
  }

  // The bands of a chart whose edges differ from the line: its name, and both edges.
  function bandsOf(chart, charts) {
    const bands = [];
    for (const [name, least, most, colour] of chart.bands || []) {
      if (!charts.dataset[least] && !charts.dataset[most]) continue;
      const edge = (key) => numbers(charts.dataset[key] || charts.dataset[name]);
      bands.push({ name, least: edge(least), most: edge(most), hasLeast: Boolean(least), colour });
    }
    return bands;
  }

  // One tick is a round part of a day in local time: 04:00, not 03:20.
  function timeTicks(u, axis, from, to) {
    const steps = [300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 345600];
    const fits = Math.max(2, Math.floor((u.width - 60) / 60));
    const step = steps.find((one) => (to - from) / one <= fits) || 604800;
    const shift = new Date(to * 1000).getTimezoneOffset() * 60;
    const ticks = [];
    for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
    return ticks;
  }

  function timeTexts(u, ticks) {
    return ticks.map((tick) => {
      const date = new Date(tick * 1000);
      const isMidnight = date.getHours() + date.getMinutes() === 0;
      return isMidnight && u.scales.x.max - u.scales.x.min > 172800 ? date.getDate() + " " + month.format(date) : clock(date);
    });
  }

  function draw(figure, charts) {
    const kind = figure.dataset.chart, chart = CHARTS[kind], unit = figure.dataset.unit || "";
    const columns = chart.series.map(([name]) => numbers(charts.dataset[name]));
    if (!columns.some(hasValues)) { figure.hidden = true; return null; }
    const bands = bandsOf(chart, charts);
    const begin = Number(charts.dataset.begin), every = Number(charts.dataset.every);
    const times = charts.dataset.times ? numbers(charts.dataset.times) : columns[0].map((_, at) => begin + at * every);
    const marks = chart.marks ? [...document.querySelectorAll(".marks [data-at]")].map((one) => ({
      at: Number(one.dataset.at), up: one.dataset.mark === "up", text: one.querySelector("span").textContent })) : [];

    const plot = document.createElement("div"), value = document.createElement("div");
    plot.className = "plot";
    value.className = "value";
    plot.tabIndex = 0;
    const title = figure.querySelector("figcaption").textContent.trim();
    Object.entries({ role: "slider", "aria-label": title + ": arrow keys move through time", "aria-valuemin": 0,
      "aria-valuemax": times.length - 1, "aria-valuenow": times.length - 1, "aria-valuetext": "" })
      .forEach(([name, text]) => plot.setAttribute(name, text));
    figure.append(plot, value);

    const axis = { stroke: () => css("--muted"), font: "11px system-ui, sans-serif", grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false } };
    const stepped = uPlot.paths.stepped({ align: 1 });
    const edge = { stroke: "transparent", width: 0, paths: stepped, points: { show: false }, spanGaps: false };
    const options = {
      width: Math.max(plot.clientWidth, 200), height: chart.height, legend: { show: false }, padding: [chart.marks ? 16 : 10, 22, 0, 0],
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, sync: { key: "charts" }, points: { size: 7 } },
      scales: { x: { time: true, range: (u, least, most) => [least, Math.max(most, least + 60)] },
        y: { range: (u, least, most) => [0, chart.most || Math.max((most || 0) * 1.15, chart.least || 0, chart.money ? 0.1 : 1)] } },
      axes: [Object.assign({}, axis, { size: 26, splits: timeTicks, values: timeTexts }),
        Object.assign({}, axis, { size: 46, space: 30, incrs: chart.money ? undefined : [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10000],
          values: (u, ticks) => ticks.map((one) => chart.money ? unit + (one < 10 ? one.toFixed(2) : one) : one + (chart.unit || "")) })],
      series: [{}].concat(chart.series.map(([, label, colour, filled, dash]) => ({ label, stroke: () => css(colour), width: 1.8,
        fill: filled ? () => css(colour === "--orange" ? "--orangearea" : "--area") : undefined, dash, paths: stepped, points: { show: false },
        spanGaps: false }))).concat(bands.flatMap(() => [edge, edge])),
      bands: bands.map((band, at) => ({ series: [columns.length + 1 + 2 * at, columns.length + 2 + 2 * at], fill: () => css(band.colour) })),
      hooks: { setCursor: [(u) => tell(u.cursor.idx)], ready: [(u) => showMarks(u)], setSize: [(u) => showMarks(u)] },
    };

    function range(band, values, at) {
      if (!band || (band.least[at] === values[at] && band.most[at] === values[at])) return "";
      const most = shownValue(kind, unit, band.most[at]);
      return " (" + (band.hasLeast ? shownValue(kind, unit, band.least[at]) + " to " : "up to ") + most + ")";
    }
    function text(at) {
      const parts = chart.series.map(([name, label], series) =>
        label + " " + shownValue(kind, unit, columns[series][at]) + range(bands.find((band) => band.name === name), columns[series], at))
        .filter((_, series) => hasValues(columns[series]));
      const near = marks.filter((mark) => mark.at >= times[at] && mark.at < (times[at + 1] || Infinity));
      return when(new Date(times[at] * 1000)) + " " + zone(new Date(times[at] * 1000)) + " · " + parts.join(" · ") +
        near.map((mark) => " · " + (mark.up ? "▲ " : "▼ ") + mark.text).join("");
    }
    function tell(at) {
      const known = at === null || at === undefined ? null : at;
      value.textContent = known === null ? "" : text(known);
      if (known !== null) { plot.setAttribute("aria-valuenow", known); plot.setAttribute("aria-valuetext", text(known)); }
    }
    function showMarks(u) {
      u.over.querySelectorAll(".mark").forEach((one) => one.remove());
      for (const mark of marks) {
        const sign = document.createElement("span");
        sign.className = "mark " + (mark.up ? "up" : "down");
        sign.textContent = mark.up ? "▲" : "▼";
        sign.title = when(new Date(mark.at * 1000)) + ": " + mark.text;
        sign.setAttribute("aria-hidden", "true");
        sign.style.left = u.valToPos(mark.at, "x") + "px";
        sign.style.top = "-12px";
        u.over.append(sign);
      }
    }
    const u = new uPlot(options, [times].concat(columns, bands.flatMap((band) => [band.most, band.least])), plot);
    const move = (at) => u.setCursor({ left: u.valToPos(times[at], "x"), top: 10 });
    plot.addEventListener("keydown", (event) => {
      const last = times.length - 1, at = Number(plot.getAttribute("aria-valuenow"));
      const big = Math.max(1, Math.round(times.length / 24));
      const target = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowUp: at + 1, PageUp: at + big, PageDown: at - big, Home: 0, End: last }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      move(Math.min(Math.max(target, 0), last));
    });
    plot.addEventListener("focus", () => move(Number(plot.getAttribute("aria-valuenow"))));
    plot.addEventListener("blur", () => u.setCursor({ left: -10, top: -10 }));
    plot.setAttribute("aria-valuetext", text(times.length - 1));
    return u;
  }

  function drawAll() {
    plots.forEach((plot) => plot.destroy());
    plots = [];
    for (const charts of document.querySelectorAll(".charts"))
      for (const figure of charts.querySelectorAll("figure")) {
        const u = draw(figure, charts);
        if (u) plots.push(u);
      }
  }
  addEventListener("resize", () => plots.forEach((u) => {
    const width = u.root.parentElement.clientWidth;
    if (width && width !== u.width) u.setSize({ width, height: u.height });
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((u) => u.redraw()));

  // -- copying

  function copyButtons(part) {
    if (!navigator.clipboard) return;
    for (const button of part.querySelectorAll(".copy")) button.hidden = false;
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    navigator.clipboard.writeText(button.previousElementSibling.textContent).then(
      () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 2000); },
      () => { button.textContent = "not copied"; });
  });

  // -- parts of the page in place: choices, filters, reloads

  let last = 0;
  async function load(address, options) {
    const turn = ++last;
    let page;
    try {
      const answer = await fetch(address, { credentials: "same-origin", headers: { Accept: "text/html" } });
      if (!answer.ok) throw new Error(String(answer.status));
      page = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch (error) {
      if (!options.quiet) location.assign(address);
      return;
    }
    const fresh = page.getElementById("content");
    if (turn !== last || !fresh) return;
    const active = document.activeElement, inside = main().contains(active);
    const opened = [...main().querySelectorAll("details")].map((one) => one.open);
    const focusable = "a, button, input, select, summary, [tabindex]";
    const place = inside ? [...main().querySelectorAll(focusable)].indexOf(active) : -1;
    const typed = inside && active.matches("input") ? [active.value, active.selectionStart, active.selectionEnd] : null;
    main().replaceChildren(...fresh.childNodes);
    main().querySelectorAll("details").forEach((one, at) => { if (opened[at] !== undefined) one.open = opened[at]; });
    root.dataset.now = page.documentElement.dataset.now;
    const old = document.getElementById("clock"), made = page.getElementById("clock");
    if (old && made) old.replaceChildren(...made.childNodes);
    const tabs = document.querySelector(".bottom"), newTabs = page.querySelector(".bottom");
    if (tabs && newTabs) tabs.replaceChildren(...newTabs.childNodes);
    start();
    const again = place >= 0 ? main().querySelectorAll(focusable)[place] : null;
    if (again) {
      again.focus({ preventScroll: true });
      if (typed && again.matches("input")) { again.value = typed[0]; again.setSelectionRange(typed[1], typed[2]); }
    }
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.replaceState(null, "", link.href);
    load(link.href, { quiet: false });
  });
  const addressOf = (form) => {
    const words = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    return form.action.split("?")[0] + (String(words) ? "?" + words : "");
  };
  function submit(form) {
    const address = addressOf(form);
    history.replaceState(null, "", address);
    load(address, { quiet: false });
  }
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-swap]")) return;
    event.preventDefault();
    submit(event.target);
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (form && event.target.matches("select")) submit(form);
  });
  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (!form || !event.target.matches("input")) return;
    clearTimeout(typing);
    typing = setTimeout(() => submit(form), 250);
  });

  // -- reloading

  const live = document.getElementById("live"), seconds = Number(document.body.dataset.live || 0);
  const STOPPED = "outscaler does not reload";
  const stopped = () => sessionStorage.getItem(STOPPED) === "yes";
  function sayLive() {
    live.hidden = false;
    live.firstChild.textContent = stopped() ? "does not reload " : "reloads every " + seconds + " s ";
    live.querySelector("button").textContent = stopped() ? "reload" : "stop";
  }
  if (live && seconds) {
    sayLive();
    live.querySelector("button").addEventListener("click", () => {
      sessionStorage.setItem(STOPPED, stopped() ? "no" : "yes");
      sayLive();
      if (!stopped()) load(location.href, { quiet: true });
    });
    setInterval(() => {
      const selecting = String(getSelection() || "") !== "";
      if (!stopped() && !document.hidden && !selecting && !main().querySelector(".plot:focus, .plot:hover, input:focus"))
        load(location.href, { quiet: true });
    }, seconds * 1000);
  }

  function start() {
    localTimes(document);
    copyButtons(document);
    drawAll();
  }
  start();
})();
