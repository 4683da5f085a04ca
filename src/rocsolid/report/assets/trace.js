"use strict";
// The timeline: a canvas that draws at most one box per pixel in each lane. A binary search finds the events on the same
// pixel, and sums from the start of the lane give their exact time, so the cost of a frame depends on the width of the
// window and not on the number of events.
(() => {
  const box = document.getElementById("timeline");
  if (!box) return;
  const about = JSON.parse(document.getElementById("timeline-about").textContent);
  const canvas = box.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const tip = box.querySelector(".tip");
  const detail = document.getElementById("timeline-detail");
  const search = document.getElementById("timeline-search");
  const found = document.getElementById("timeline-found");
  const AXIS = 24, LANE = 18, THIN = 13, LABEL = 190;
  const COLOURS = ["gemm", "attention", "normalisation", "elementwise", "convolution", "reduction", "copy", "collective", "other"];
  let lanes = [], hosts = [], left = 0, right = about.span, palette = {}, wanted = null, hits = [], hit = -1, chosen = null, mark = null, asked = false;

  async function unpack() {
    const text = JSON.parse(document.getElementById("timeline-data").textContent);
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const words = new Uint32Array(await new Response(stream).arrayBuffer());
    let at = 0, top = AXIS;
    for (const lane of about.lanes) {
      const start = new Float64Array(lane.count);
      let sum = 0;
      for (let n = 0; n < lane.count; n++) { sum += words[at + n]; start[n] = sum * about.unit; }
      const length = words.subarray(at + lane.count, at + 2 * lane.count);
      const name = words.subarray(at + 2 * lane.count, at + 3 * lane.count);
      const column = (n) => words.subarray(at + n * lane.count, at + (n + 1) * lane.count);
      const more = lane.kind === "host" ? {} : { operator: column(3), extra: column(4), launch: column(5) };
      const sums = new Float64Array(lane.count + 1);
      for (let n = 0; n < lane.count; n++) sums[n + 1] = sums[n] + length[n] * about.unit;
      at += (lane.kind === "host" ? 3 : 6) * lane.count;
      const high = lane.kind === "host" ? THIN : LANE;
      top += lane.depth === 0 ? 6 : 0;
      lanes.push({ ...lane, ...more, start, length, name, sums, top, high });
      if (lane.kind === "host") hosts.push(lanes[lanes.length - 1]);
      top += high + 1;
    }
    canvas.style.height = `${Math.max(top + 8, 90)}px`;
    box.dataset.ready = "yes";
    resize();
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    palette = { ink: of("--ink"), faint: of("--faint"), line: of("--line"), card: of("--card"), host: of("--c-host"), mark: of("--c-mark"), link: of("--link"), warning: of("--warning") };
    palette.by = COLOURS.map((name) => of(`--c-${name}`));
  }

  function resize() {
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(canvas.clientHeight * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    colours();
    draw();
  }

  const width = () => Math.max(50, canvas.clientWidth - LABEL);
  const toX = (time) => LABEL + (time - left) / (right - left) * width();
  const toTime = (x) => left + (x - LABEL) / width() * (right - left);
  const long = (lane, n) => lane.length[n] * about.unit;

  // The first event that starts at or after a moment.
  function after(lane, time, low = 0) {
    let high = lane.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.start[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  function draw() { if (!asked) { asked = true; requestAnimationFrame(paint); } }

  function paint() {
    asked = false;
    const high = canvas.clientHeight, wide = canvas.clientWidth;
    pen.fillStyle = palette.card;
    pen.fillRect(0, 0, wide, high);
    axis(wide, high);
    if (mark) {
      pen.globalAlpha = .25; pen.fillStyle = palette.warning;
      pen.fillRect(Math.max(LABEL, toX(mark[0])), AXIS, Math.max(2, toX(mark[1]) - Math.max(LABEL, toX(mark[0]))), high - AXIS);
      pen.globalAlpha = 1;
    }
    const pixel = (right - left) / width();
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const lane of lanes) events(lane, pixel, wide);
    arrow();
    pen.fillStyle = palette.card;
    pen.fillRect(0, AXIS, LABEL - 1, high - AXIS);
    pen.fillStyle = palette.ink;
    pen.textAlign = "left";
    for (const lane of lanes) if (lane.label) pen.fillText(clip(lane.label, LABEL - 12), 6, lane.top + lane.high / 2);
  }

  function events(lane, pixel, wide) {
    let n = Math.max(0, after(lane, left) - 1);
    let reached = LABEL;
    while (n < lane.count && lane.start[n] < right) {
      const start = lane.start[n], end = start + long(lane, n);
      if (end < left) { n++; continue; }
      const x = Math.max(LABEL, toX(start)), w = Math.max(1, Math.min(wide, toX(end)) - x);
      const lit = !wanted || wanted.has(lane.name[n]);
      pen.globalAlpha = lit ? 1 : .18;
      const category = about.categories[lane.name[n]];
      pen.fillStyle = chosen && chosen.lane === lane && chosen.n === n ? palette.mark : lane.kind === "host" ? palette.host : palette.by[category];
      const next = w > 1.5 ? n + 1 : Math.max(n + 1, after(lane, Math.max(start, left) + pixel, n + 1));
      // Several events on one pixel: the height is the share of the pixel that they fill.
      const filled = next > n + 1 ? Math.min(1, (lane.sums[next] - lane.sums[n]) / pixel) : 1;
      const tall = Math.max(2, lane.high * filled);
      pen.fillRect(x, lane.top + lane.high - tall, w > 2 ? w - .5 : w, tall);
      if (w > 34) { pen.fillStyle = lane.kind === "host" ? palette.ink : palette.card; pen.textAlign = "left"; pen.fillText(clip(short(lane.name[n]), w - 6), x + 3, lane.top + lane.high / 2 + .5); }
      reached = x + w;
      n = next;
    }
    pen.globalAlpha = 1;
    return reached;
  }

  const short = (name) => about.labels[name] || about.names[name].replace(/^void |\(anonymous namespace\)::|at::native::/g, "");

  // The host event that launched a device event.
  function launchOf(one) {
    let number = one.lane.launch ? one.lane.launch[one.n] : 0;
    if (!number) return null;
    for (const lane of hosts) { if (number <= lane.count) return { lane, n: number - 1 }; number -= lane.count; }
    return null;
  }

  function arrow() {
    const from = chosen && launchOf(chosen);
    if (!from) return;
    const x1 = toX(from.lane.start[from.n]), y1 = from.lane.top, x2 = toX(chosen.lane.start[chosen.n]), y2 = chosen.lane.top + chosen.lane.high;
    pen.strokeStyle = pen.fillStyle = palette.mark; pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(x1, y1); pen.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2 + 5); pen.stroke();
    pen.beginPath(); pen.moveTo(x2, y2); pen.lineTo(x2 - 4, y2 + 7); pen.lineTo(x2 + 4, y2 + 7); pen.fill();
    pen.lineWidth = 1;
  }

  // Exact sums of a range: events that are cut at its edges count with the part inside.
  function rangeText(from, to) {
    const by = new Map();
    let events = 0, work = 0, host = 0;
    for (const lane of lanes) {
      for (let n = Math.max(0, after(lane, from) - 1); n < lane.count && lane.start[n] < to; n++) {
        const inside = Math.min(to, lane.start[n] + long(lane, n)) - Math.max(from, lane.start[n]);
        if (inside <= 0) continue;
        if (lane.kind === "host") { host++; continue; }
        events++; work += inside;
        const kind = COLOURS[about.categories[lane.name[n]]];
        by.set(kind, (by.get(kind) || 0) + inside);
      }
    }
    const parts = [...by].sort((a, b) => b[1] - a[1]).map(([kind, time]) => `${kind} ${nice(time)}`);
    return `${nice(to - from)} selected: ${events.toLocaleString("en")} device events, ${nice(work)} of device time, ${host.toLocaleString("en")} host events\n${parts.join(", ")}`;
  }

  function clip(text, room) {
    const letters = Math.floor(room / 6);
    return text.length <= letters ? text : letters > 1 ? `${text.slice(0, letters - 1)}…` : "";
  }

  function axis(wide, high) {
    const rough = (right - left) / Math.max(2, width() / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    pen.strokeStyle = palette.line; pen.fillStyle = palette.faint; pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "top"; pen.textAlign = "left";
    pen.beginPath();
    for (let time = Math.ceil(left / step) * step; time < right; time += step) {
      const x = Math.round(toX(time)) + .5;
      pen.moveTo(x, 16); pen.lineTo(x, high);
      if (x < wide - 50) pen.fillText(nice(time, step), x + 3, 3);
    }
    pen.stroke();
  }

  function nice(ns, step = ns) {
    const size = Math.abs(ns) || 1;
    const [unit, word] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.abs(step) / unit || 1)) + (step === ns ? 2 : 0)));
    return `${(ns / unit).toFixed(unit === 1 ? 0 : digits)} ${word}`;
  }

  function look(from, to) {
    const least = 20, span = Math.max(least, Math.min(to - from, about.span * 1.1));
    const middle = (from + to) / 2;
    left = Math.max(-about.span * .05, Math.min(middle - span / 2, about.span * 1.05 - span));
    right = left + span;
    box.dataset.view = `${Math.round(left)} ${Math.round(right)}`;
    draw();
  }

  const zoom = (factor, time = (left + right) / 2) => look(time - (time - left) * factor, time + (right - time) * factor);
  const pan = (share) => look(left + (right - left) * share, right + (right - left) * share);

  function at(x, y) {
    const lane = lanes.find((one) => y >= one.top && y <= one.top + one.high);
    if (!lane || x < LABEL) return null;
    const time = toTime(x), slack = (right - left) / width();
    for (let n = Math.max(0, after(lane, time + slack) - 1), tries = 0; n >= 0 && tries < 4; n--, tries++) {
      if (lane.start[n] <= time + slack && lane.start[n] + Math.max(long(lane, n), slack) >= time) return { lane, n };
    }
    return null;
  }

  function details(one, most = Infinity) {
    const kind = one.lane.kind === "host" ? "" : ` · ${COLOURS[about.categories[one.lane.name[one.n]]]}`;
    const name = about.names[one.lane.name[one.n]];
    const lines = [name.length > most ? `${name.slice(0, most)}…` : name, `${nice(long(one.lane, one.n))} from ${nice(one.lane.start[one.n])}${kind}${one.lane.label ? ` · ${one.lane.label}` : ""}`];
    const operator = one.lane.operator ? one.lane.operator[one.n] : 0, extra = one.lane.extra ? about.details[one.lane.extra[one.n]] : "";
    if (operator || extra) lines.push([operator ? `operator ${about.names[operator - 1]}` : "", extra].filter(Boolean).join("; "));
    const from = launchOf(one);
    if (from) lines.push(`launched by ${about.names[from.lane.name[from.n]]}, ${nice(one.lane.start[one.n] - from.lane.start[from.n])} before`);
    return lines.join("\n");
  }

  function choose(one) {
    chosen = one;
    detail.textContent = one ? details(one) : "";
    draw();
  }

  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.offsetX, left, right, moved: false, range: event.shiftKey && event.offsetX > LABEL }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const by = (event.offsetX - held.x) / width() * (held.right - held.left);
      held.moved ||= Math.abs(event.offsetX - held.x) > 3;
      if (held.range) {
        mark = [toTime(Math.min(held.x, event.offsetX)), toTime(Math.max(held.x, event.offsetX))];
        chosen = null;
        detail.textContent = rangeText(...mark);
        draw();
        return;
      }
      canvas.classList.add("dragging");
      look(held.left - by, held.right - by);
      return;
    }
    const one = at(event.offsetX, event.offsetY);
    tip.hidden = !one;
    if (one) {
      tip.textContent = details(one, 120);
      tip.style.left = `${Math.min(event.offsetX + 12, canvas.clientWidth - 260)}px`;
      tip.style.top = `${event.offsetY + 14}px`;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("dragging");
    if (held && !held.moved) choose(at(event.offsetX, event.offsetY));
    held = null;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 900);
    else zoom(Math.exp(event.deltaY / 400), toTime(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("dblclick", () => { if (chosen) { const s = chosen.lane.start[chosen.n], l = long(chosen.lane, chosen.n) || 10; look(s - l, s + 2 * l); } });
  canvas.addEventListener("keydown", (event) => {
    const act = {
      ArrowLeft: () => pan(-.2), ArrowRight: () => pan(.2), a: () => pan(-.2), d: () => pan(.2),
      ArrowUp: () => zoom(.7), ArrowDown: () => zoom(1.4), w: () => zoom(.7), s: () => zoom(1.4), "+": () => zoom(.7), "-": () => zoom(1.4),
      0: () => { mark = null; look(0, about.span); }, Home: () => look(0, right - left), End: () => look(about.span - (right - left), about.span),
      n: () => step(1), p: () => step(-1), Escape: () => { mark = null; choose(null); }, "/": () => search.focus(),
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  });

  function seek() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = []; hit = -1; wanted = null;
    if (words.length) {
      wanted = new Set();
      about.names.forEach((name, n) => { const low = name.toLowerCase(); if (words.every((word) => low.includes(word))) wanted.add(n); });
      for (const lane of lanes) for (let n = 0; n < lane.count; n++) if (wanted.has(lane.name[n])) hits.push([lane, n]);
      hits.sort((a, b) => a[0].start[a[1]] - b[0].start[b[1]]);
    }
    found.value = words.length ? `${hits.length.toLocaleString("en")} events` : "";
    draw();
  }

  function step(by) {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    const [lane, n] = hits[hit];
    const span = Math.min(right - left, Math.max(long(lane, n) * 12, 1000));
    look(lane.start[n] - span / 2, lane.start[n] + span / 2);
    choose({ lane, n });
    found.value = `${(hit + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
  }

  let typing = 0;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(seek, 120); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); clearTimeout(typing); if (!hits.length) seek(); step(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { search.value = ""; seek(); canvas.focus(); }
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => zoom(.5), out: () => zoom(2), all: () => { mark = null; look(0, about.span); } })[button.dataset.zoom]());
  }

  // A click on a row of the gap table shows the gap and its details.
  document.addEventListener("click", (event) => gap(event.target.closest?.("tr.gap")));
  document.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches?.("tr.gap")) gap(event.target); });
  function gap(row) {
    if (!row) return;
    for (const other of document.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    row.classList.add("chosen");
    const start = Number(row.dataset.start), duration = Number(row.dataset.duration);
    mark = [start, start + duration];
    detail.textContent = row.dataset.details;
    look(start - duration * 1.5, start + duration * 2.5);
    box.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  new MutationObserver(() => { colours(); draw(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); draw(); });
  addEventListener("resize", resize);
  box.dataset.view = `0 ${about.span}`;
  requestAnimationFrame(() => setTimeout(unpack, 0));
})();
