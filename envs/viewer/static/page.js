"use strict";
(() => {
  const $ = (name) => document.getElementById(name);
  const home = document.body.dataset.home, base = document.body.dataset.base;

  // Charts: each figure's data attribute says what is drawn.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => v == null ? "–" : Math.abs(v) >= 1e6 ? (v / 1e6).toFixed(1) + "M" : Math.abs(v) >= 1e4 ? (v / 1e3).toFixed(1) + "k" : Math.abs(v) >= 100 ? v.toFixed(0) : String(+v.toPrecision(3));
  const forms = { share: (v) => v == null ? "–" : +(100 * v).toFixed(1) + "%", count: short, number: short };
  const clock = (u, ticks) => {
    const exact = ticks.length > 1 && ticks[1] - ticks[0] < 60 ? { second: "2-digit" } : {};
    return ticks.map((t) => new Date(1000 * t).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...exact }));
  };
  // Where nothing is pointed at, the legend has the last figures.
  const newest = (u) => { if (u.legend.idx == null) u.setLegend({ idx: u.data[0].length - 1 }, false); };
  // Steps are whole numbers.
  const whole = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((first) => first * 10 ** power));
  const plots = [];
  const draw = () => {
    for (const plot of plots.splice(0)) plot.destroy();
    if (!window.uPlot) return;
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const chart = JSON.parse(figure.dataset.chart), box = figure.querySelector(".plot");
      box.textContent = "";
      if (!chart.x.length) continue;
      const time = chart.over === "time", form = forms[chart.form];
      let values = chart.values;
      if (chart.filled) {
        const sum = chart.x.map(() => 0);
        values = values.map((line) => line.map((v, i) => (sum[i] += v || 0))).reverse();
      }
      const names = chart.filled ? chart.names.slice().reverse() : chart.names;
      const tones = ["--c1", "--c2", "--c3", "--c4", "--c5"].map(colour);
      const phases = { sandbox: "--s-open", "inference server": "--s-engine", tools: "--s-tools", verifier: "--s-verifier", rest: "--s-rest" };
      const dashes = [undefined, [7, 5], [2, 4], [10, 4, 2, 4], [4, 4]];
      const own = (i) => chart.filled ? chart.values[chart.names.length - 1 - i] : null;
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "11px system-ui" };
      plots.push(new uPlot({
        width: Math.max(200, box.clientWidth), height: 172,
        cursor: { sync: { key: time ? "time" : "step" }, points: { size: 6 } },
        scales: { x: { time }, y: { range: (u, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } },
        hooks: { ready: [newest], setLegend: [newest] },
        axes: [time ? { ...axis, space: 80, values: clock } : { ...axis, incrs: whole }, { ...axis, size: 50, values: (u, ticks) => ticks.map(form) }],
        series: [
          time ? { label: "time", value: (u, v) => v == null ? "–" : new Date(1000 * v).toLocaleTimeString() } : { label: "step", value: (u, v) => v == null ? "–" : String(v) },
          ...names.map((label, i) => {
            const stroke = chart.filled && phases[label] ? colour(phases[label]) : tones[i % tones.length];
            // Where lines lie on each other, the one beneath is wider and shows through the gaps of the others.
            const place = chart.filled ? {} : { width: i ? 1.6 : names.length > 1 ? 2.6 : 1.6, dash: dashes[i % dashes.length] };
            return { label, stroke, width: 1.6, spanGaps: true, fill: chart.filled ? stroke : undefined, points: { show: chart.x.length < 40, size: Math.max(4, (names.length > 1 && !chart.filled ? 8 : 5) - 2 * i), fill: stroke }, ...place,
              value: (u, v, s, at) => form(at == null ? null : chart.filled ? own(i)[at] : v) };
          }),
        ],
      }, [chart.x, ...values], box));
      if (!time) box.ondblclick = () => {
        const at = plots.find((plot) => box.contains(plot.root)).cursor.idx;
        if (at != null) location = home + "/rollouts?step=" + chart.x[at] + (chart.x[at + 1] > chart.x[at] + 1 ? "-" + (chart.x[at + 1] - 1) : "");
      };
    }
  };
  const times = () => {
    for (const time of document.querySelectorAll("time[data-t]")) time.textContent = new Date(1000 * time.dataset.t).toLocaleString();
  };

  // Puts what is new into what is shown. Elements that stay are not replaced: a screen reader stays at its place.
  const mend = (before, now) => {
    if (before.isEqualNode(now)) return;
    if (before.nodeName !== now.nodeName) return before.replaceWith(now);
    if (before.nodeType !== Node.ELEMENT_NODE) { before.nodeValue = now.nodeValue; return; }
    for (const { name } of Array.from(before.attributes)) if (name !== "open" && !now.hasAttribute(name)) before.removeAttribute(name);
    for (const { name, value } of now.attributes) if (name !== "open" && before.getAttribute(name) !== value) before.setAttribute(name, value);
    if (before.classList.contains("plot")) return;
    const olds = Array.from(before.childNodes), news = Array.from(now.childNodes);
    news.forEach((one, i) => olds[i] ? mend(olds[i], one) : before.append(one));
    for (const one of olds.slice(news.length)) one.remove();
  };

  // While somebody looks, what has changed on disk replaces what is shown.
  let seen = document.body.dataset.seen, asking = false;
  const refresh = async () => {
    if (document.hidden || asking || !seen || !document.querySelector("[data-live]") || $("keys").open) return;
    asking = true;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { "x-seen": seen } });
      if (answer.status !== 200) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      seen = page.body.dataset.seen;
      const at = document.querySelector(".line.at a")?.getAttribute("href");
      for (const id of ["live", ...Array.from(document.querySelectorAll("[data-live]"), (part) => part.id)]) {
        const now = page.getElementById(id), before = $(id);
        if (now && before && !before.contains(document.activeElement)) mend(before, now);
      }
      if (at) document.querySelector('.line a[href="' + CSS.escape(at) + '"]')?.closest(".line").classList.add("at");
      times();
      draw();
    } catch { /* the run is over, or the page's process is: what is shown stays */ } finally { asking = false; }
  };
  setInterval(refresh, 5000);
  document.addEventListener("visibilitychange", refresh);

  // The timeline of a rollout leads to its turns.
  document.addEventListener("click", (event) => {
    const span = event.target.closest?.("[data-turn]");
    if (span) location = span.dataset.turn.includes("#") ? span.dataset.turn : "#" + span.dataset.turn;
    const token = event.target.closest?.("#row i");
    if (token) choose(token, true);
  });

  // Tokens.
  const panel = $("token");
  let chosen = null;
  const choose = (token, link) => {
    if (!token || !panel) return;
    chosen?.classList.remove("at");
    chosen = token;
    chosen.classList.add("at");
    const place = Number(token.id.slice(1));
    const turn = JSON.parse(panel.dataset.turns).filter(([, start]) => start <= place).pop();
    const [id, logprob, probability, advantage] = token.dataset.about.split(" · ");
    const weights = panel.dataset.weights;
    panel.textContent = `token ${place.toLocaleString("en")}: ${JSON.stringify(token.textContent)}, id ${id}` +
      (logprob ? `, trained: logprob ${logprob}, probability ${probability}` + (advantage ? `, ${advantage}` : "") + (turn ? `, turn ${turn[0]}` : "") + (weights ? `, weights of step ${weights}` : "") : ", given: not trained");
    if (link) history.replaceState(null, "", "#" + token.id);
  };
  if (panel) {
    $("row").addEventListener("mouseover", (event) => { if (event.target.tagName === "I") choose(event.target, false); });
    const target = location.hash.startsWith("#t") && $(location.hash.slice(1));
    if (target) { choose(target, false); target.scrollIntoView({ block: "center" }); }
    addEventListener("hashchange", () => choose($(location.hash.slice(1)), false));
  }

  // Keys.
  const typing = (element) => /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName);
  const go = (link) => { if (link) location = link.href; };
  const items = () => Array.from(document.querySelectorAll(".line, .turn.agent, article.member"));
  let at = -1;
  const move = (by) => {
    const all = items();
    const now = all.findIndex((item) => item.classList.contains("at"));
    at = Math.max(0, Math.min(all.length - 1, (now < 0 ? (by > 0 ? -1 : all.length) : now) + by));
    all.forEach((item, i) => item.classList.toggle("at", i === at));
    all[at]?.scrollIntoView({ block: "nearest" });
  };
  const step = (by) => {
    const tokens = Array.from($("row").querySelectorAll("i")), next = chosen ? tokens[tokens.indexOf(chosen) + by] : tokens[0];
    if (next) { choose(next, true); next.scrollIntoView({ block: "nearest" }); }
  };
  const keys = {
    "/": () => $("search")?.focus(), o: () => location = home + "/", e: () => location = home + "/evaluations", r: () => location = home + "/rollouts",
    g: () => location = home + "/groups", f: () => location = home + "/failures", c: () => location = base + "/compare",
    j: () => move(1), k: () => move(-1), Enter: () => go(document.querySelector(".line.at a, a.line.at, .member.at a.open")),
    "[": () => go(document.querySelector("a[rel=prev]")), "]": () => go(document.querySelector("a[rel=next]")),
    t: () => go($("to-tokens") ?? $("to-rollout")), u: () => go(document.querySelector("a[rel=up]")),
    "?": () => $("keys").showModal(),
    // Elsewhere these two scroll what is too wide.
    ...(panel && { ArrowRight: () => step(1), ArrowLeft: () => step(-1) }),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (event.key === "Escape" && typing(event.target)) return event.target.blur();
    if (typing(event.target) || (event.key === "Enter" && event.target.closest("a, button, summary"))) return;
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  $("keys-open").addEventListener("click", () => $("keys").showModal());
  for (const select of document.querySelectorAll(".filter select")) select.addEventListener("change", () => select.form.requestSubmit());

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  times();
  draw();
})();
