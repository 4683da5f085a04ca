"use strict";
// The flame graph: Python stacks as a tree with threads as roots. Children are below their parent, the heaviest on the left.
(() => {
  const box = document.getElementById("flame");
  if (!box) return;
  const about = JSON.parse(document.getElementById("flame-about").textContent);
  const canvas = box.querySelector("canvas"), pen = canvas.getContext("2d"), tip = box.querySelector(".tip");
  const detail = document.getElementById("flame-detail"), search = document.getElementById("flame-search");
  const found = document.getElementById("flame-found"), weight = document.getElementById("flame-weight");
  const LINE = 18, KINDS = ["code", "module", "torch", "builtin"], count = about.name.length;
  const children = Array.from({ length: count }, () => []), roots = [], depth = new Uint16Array(count);
  let weights, left = new Float64Array(count), top = -1, chosen = -1, wanted = null, palette = {}, drawn = [], asked = false;

  for (let n = 0; n < count; n++) {
    const parent = about.parent[n];
    if (parent < 0) { roots.push(n); continue; }
    children[parent].push(n);
    depth[n] = depth[parent] + 1;
  }

  // The left edge of each node in nanoseconds; a parent comes before its children in the list.
  function arrange() {
    weights = weight.value === "device" ? about.device : about.host;
    const heavy = (a, b) => weights[b] - weights[a];
    let sum = 0;
    for (const root of roots.sort(heavy)) { left[root] = sum; sum += weights[root]; }
    for (let n = 0; n < count; n++) {
      let at = left[n];
      for (const child of children[n].sort(heavy)) { left[child] = at; at += weights[child]; }
    }
    box.dataset.weight = weight.value;
    look(-1);
  }

  const total = () => roots.reduce((sum, root) => sum + weights[root], 0);
  const view = () => top < 0 ? [0, total() || 1] : [left[top], weights[top] || 1];

  function look(node) {
    top = node;
    box.dataset.top = node < 0 ? "" : about.names[about.name[node]];
    let deepest = 0;
    const [from, span] = view();
    for (let n = 0; n < count; n++) if (weights[n] > span / 2000 && left[n] + weights[n] > from && left[n] < from + span) deepest = Math.max(deepest, depth[n]);
    canvas.style.height = `${(deepest + 1) * LINE + 4}px`;
    resize();
    box.scrollTop = node < 0 ? 0 : Math.max(0, (depth[node] - 2) * LINE);
  }

  function colours() {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
    palette = { ink: of("--ink"), card: of("--card"), mark: of("--c-mark"), kinds: KINDS.map((kind) => of(`--f-${kind}`)) };
  }

  function resize() {
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(canvas.clientHeight * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    colours();
    draw();
  }

  function draw() { if (!asked) { asked = true; requestAnimationFrame(paint); } }

  function paint() {
    asked = false;
    const wide = canvas.clientWidth, [from, span] = view();
    pen.fillStyle = palette.card;
    pen.fillRect(0, 0, wide, canvas.clientHeight);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    drawn = [];
    const waiting = [...roots];
    while (waiting.length) {
      const n = waiting.pop();
      const start = Math.max(0, (left[n] - from) / span * wide), end = Math.min(wide, (left[n] + weights[n] - from) / span * wide);
      if (end - start < .6) continue;
      drawn.push([n, start, end]);
      const lit = !wanted || wanted.has(about.name[n]), above = top >= 0 && depth[n] < depth[top];
      pen.globalAlpha = !lit ? .22 : above ? .55 : 1;
      pen.fillStyle = n === chosen ? palette.mark : palette.kinds[about.parent[n] < 0 ? 3 : about.kinds[about.name[n]]];
      pen.fillRect(start, depth[n] * LINE + 1, Math.max(.6, end - start - .6), LINE - 1);
      pen.globalAlpha = 1;
      if (end - start > 30) {
        pen.fillStyle = n === chosen ? palette.card : palette.ink;
        pen.fillText(clip(short(about.names[about.name[n]]), end - start - 6), start + 3, depth[n] * LINE + LINE / 2 + 1);
      }
      for (const child of children[n]) waiting.push(child);
    }
    box.dataset.ready = "yes";
    box.dataset.drawn = drawn.length;
  }

  // Keep the end of a path: it is the most useful part.
  const short = (name) => name.replace(/^.*\/([^/]+\.py\(\d+\): )/, "$1");

  function clip(text, room) {
    const letters = Math.floor(room / 6);
    return text.length <= letters ? text : letters > 1 ? `${text.slice(0, letters - 1)}…` : "";
  }

  function nice(ns) {
    const [unit, word] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    return `${(ns / unit).toFixed(unit === 1 ? 0 : 2)} ${word}`;
  }

  function details(n) {
    const share = `${(100 * weights[n] / (total() || 1)).toFixed(1)} %`;
    const calls = about.parent[n] < 0 ? "" : ` in ${about.count[n].toLocaleString("en")} call${about.count[n] === 1 ? "" : "s"}`;
    return `${about.names[about.name[n]]}\n${nice(about.host[n])} host time${calls} · ${nice(about.device[n])} of device time launched · ${share}`;
  }

  function choose(n) {
    chosen = n;
    detail.textContent = n < 0 ? "" : details(n);
    if (n >= 0) {
      const y = depth[n] * LINE;
      if (y < box.scrollTop || y + LINE > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, y - box.clientHeight / 2);
    }
    draw();
  }

  function at(event) {
    const line = Math.floor(event.offsetY / LINE);
    const hit = drawn.find(([n, start, end]) => depth[n] === line && event.offsetX >= start && event.offsetX <= end);
    return hit ? hit[0] : -1;
  }

  function selectSibling(by) {
    const family = chosen < 0 || about.parent[chosen] < 0 ? roots : children[about.parent[chosen]];
    const next = family[family.indexOf(chosen) + by];
    if (next !== undefined && weights[next] > 0) choose(next);
  }

  canvas.addEventListener("pointermove", (event) => {
    const n = at(event);
    tip.hidden = n < 0;
    if (n >= 0) {
      tip.textContent = details(n);
      tip.style.left = `${Math.min(event.offsetX + 12, Math.max(0, canvas.clientWidth - 360))}px`;
      tip.style.top = `${event.offsetY + 16}px`;
    }
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => { const n = at(event); tip.hidden = true; if (n >= 0) { choose(n); look(n); } });
  canvas.addEventListener("keydown", (event) => {
    const act = {
      ArrowDown: () => { const next = chosen < 0 ? roots[0] : children[chosen][0]; if (next !== undefined && weights[next] > 0) choose(next); },
      ArrowUp: () => { if (chosen >= 0 && about.parent[chosen] >= 0) choose(about.parent[chosen]); },
      ArrowLeft: () => selectSibling(-1), ArrowRight: () => selectSibling(1), Enter: () => look(chosen),
      Escape: () => { choose(-1); look(-1); }, 0: () => look(-1), "/": () => search.focus(),
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); event.stopPropagation(); act(); }
  });
  document.getElementById("flame-all").addEventListener("click", () => { choose(-1); look(-1); });
  weight.addEventListener("change", () => { choose(-1); arrange(); });

  let typing = 0;
  function seek() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    wanted = words.length ? new Set() : null;
    if (wanted) about.names.forEach((name, n) => { const low = name.toLowerCase(); if (words.every((word) => low.includes(word))) wanted.add(n); });
    // The callees of a match are part of it and are not counted again.
    let sum = 0;
    const inside = new Uint8Array(count);
    if (wanted) for (let n = 0; n < count; n++) {
      const parent = about.parent[n];
      inside[n] = (parent >= 0 && inside[parent]) || (wanted.has(about.name[n]) ? 1 : 0);
      if (inside[n] && !(parent >= 0 && inside[parent])) sum += weights[n];
    }
    found.value = wanted ? `${nice(sum)}, ${(100 * sum / (total() || 1)).toFixed(1)} %` : "";
    draw();
  }
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(seek, 120); });
  search.addEventListener("keydown", (event) => { if (event.key === "Escape") { search.value = ""; seek(); canvas.focus(); } });

  new MutationObserver(() => { colours(); draw(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); draw(); });
  addEventListener("resize", resize);
  requestAnimationFrame(() => setTimeout(arrange, 0));
})();
