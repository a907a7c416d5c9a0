"use strict";
// The three charts. They read `data`, `state` and `inside` of page.js.

const EDGE = { left: 46, right: 14, top: 10, bottom: 40 };

function bottomAxis(svg, width, height, scale, ticks, say, title) {
  const y = height - EDGE.bottom;
  let room = -Infinity;
  for (const tick of ticks) {
    const x = scale(tick);
    make(svg, "line", { class: "tick", x1: x, x2: x, y1: y, y2: y + 4 });
    if (x - room < 34) continue;
    room = x;
    make(svg, "text", { class: "label", x, y: y + 16, "text-anchor": "middle" }, say(tick));
  }
  make(svg, "text", { class: "label", x: width - EDGE.right, y: height - 4, "text-anchor": "end" }, title);
}

function leftTick(svg, width, y, text) {
  make(svg, "line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y });
  make(svg, "text", { class: "label", x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, text);
}

// Kept and flagged bars of one set; `base` is its zero line, `tip` how far it reaches, with room for words there.
function bars(svg, width, one, x, base, tip) {
  const shares = one.bins.map((count) => (100 * count) / one.count);
  const y = linear(0, Math.max(...shares), base, tip < base ? tip + 20 : tip - 20);
  const step = tickStep(Math.max(...shares));
  for (let value = tip < base ? 0 : step; value <= Math.max(...shares); value += step) leftTick(svg, width, y(value), `${brief(value)}%`);
  const top = Math.min(base, tip);
  const clips = {};
  for (const side of ["kept", "flagged"]) {
    const id = `clip-${one.role}-${side}`;
    const clip = make(make(svg, "clipPath", { id }), "rect", { y: top, height: Math.abs(base - tip) });
    const group = make(svg, "g", { class: `bars ${one.role} ${side}`, "clip-path": `url(#${id})` });
    shares.forEach((share, index) => {
      if (share === 0) return;
      const from = x(data.edges[index]);
      const wide = Math.max(x(data.edges[index + 1]) - from - 1, 1);
      const tall = Math.max(Math.abs(base - y(share)), 1);
      make(group, "rect", { x: from, width: wide, y: tip < base ? base - tall : base, height: tall });
    });
    clips[side] = clip;
  }
  make(svg, "line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: base, y2: base });
  const y0 = tip < base ? tip + 12 : tip - 4;
  const kept = make(svg, "text", { class: "note", x: EDGE.left + 8, y: y0 });
  const flagged = make(svg, "text", { class: "note", x: width - EDGE.right - 4, y: y0, "text-anchor": "end" });
  return (threshold, at) => {
    clips.kept.setAttribute("x", 0);
    clips.kept.setAttribute("width", at);
    clips.flagged.setAttribute("x", at);
    clips.flagged.setAttribute("width", width - at);
    const share = (100 * one.kept[threshold]) / one.count;
    kept.textContent = `kept ${percent(share)}`;
    flagged.textContent = `flagged ${percent(100 - share)}`;
  };
}

function drawHistogram(svg, width, height) {
  const shown = inside && state.chosen !== inside ? [inside, state.chosen] : [state.chosen];
  const edges = data.edges;
  const last = edges.length - 1;
  const x = logarithmic(edges[0], edges[last], EDGE.left, width - EDGE.right);
  const floor = height - EDGE.bottom;
  const middle = shown.length > 1 ? (EDGE.top + floor) / 2 : floor;
  const moves = shown.map((one, below) => bars(svg, width, one, x, middle, below ? floor : EDGE.top));
  const band = make(svg, "rect", { class: "cursor", y: EDGE.top, height: floor - EDGE.top, visibility: "hidden" });
  const line = make(svg, "line", { class: "threshold", y1: 0, y2: floor + 6 });
  bottomAxis(svg, width, height, x, logTicks(edges[0], edges[last]), brief, "regret in nats, logarithmic");
  state.moveThreshold = () => {
    const at = x(data.grid[state.step]);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    moves.forEach((move) => move(state.step, at));
  };
  state.moveThreshold();
  const range = (index) => `${index ? brief(edges[index]) : "0"} to ${brief(edges[index + 1])}`;
  const share = (one, index) => percent((100 * one.bins[index]) / one.count);
  const medians = shown.map((one) => `${one.name}, median ${brief(one.median)} nats`).join("; ");
  return {
    title: `Histogram of the regrets. ${medians}.`,
    count: last,
    at: (pixel) => Math.floor(linear(EDGE.left, width - EDGE.right, 0, last)(pixel)),
    mark(index) {
      band.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index === null) return;
      band.setAttribute("x", x(edges[index]));
      band.setAttribute("width", x(edges[index + 1]) - x(edges[index]));
    },
    say: (index) => `${range(index)} nats: ${shown.map((one) => `${share(one, index)} of ${one.name}`).join(", ")}`,
    rows: () => [
      ["Regret in nats", ...shown.map((one) => one.name)],
      Array.from({ length: last }, (_, index) => [range(index), ...shown.map((one) => share(one, index))]),
    ],
  };
}

// The TPR of a curve at an FPR: that of its last point that is not to the right of it.
function tprAt(curve, fpr) {
  let best = 0;
  for (let index = 0; index < curve.fpr.length && curve.fpr[index] <= fpr; index += 1) best = curve.tpr[index];
  return best;
}

function drawRoc(svg, width, height) {
  const x = linear(0, 100, EDGE.left, width - EDGE.right);
  const y = linear(0, 100, height - EDGE.bottom, EDGE.top);
  for (const tick of [0, 25, 50, 75, 100]) leftTick(svg, width, y(tick), `${tick}%`);
  bottomAxis(svg, width, height, x, [0, 25, 50, 75, 100], (tick) => `${tick}%`, "FPR: OOD samples kept");
  make(svg, "line", { class: "chance", x1: x(0), y1: y(0), x2: x(100), y2: y(100) });
  const curves = ["pnml", "baseline"].filter((name) => state.chosen.roc && state.chosen.roc[name]);
  for (const name of [...curves].reverse()) {
    const curve = state.chosen.roc[name];
    const points = curve.fpr.map((fpr, index) => `${x(fpr).toFixed(1)},${y(curve.tpr[index]).toFixed(1)}`);
    make(svg, "polyline", { class: `curve ${name}`, points: points.join(" ") });
  }
  const here = make(svg, "circle", { class: "here", r: 5, visibility: "hidden" });
  state.moveRoc = () => {
    if (!state.chosen.roc) return;
    const fpr = (100 * state.chosen.kept[state.step]) / state.chosen.count;
    const tpr = (100 * inside.kept[state.step]) / inside.count;
    here.setAttribute("cx", x(fpr));
    here.setAttribute("cy", y(tpr));
    here.setAttribute("visibility", "visible");
  };
  state.moveRoc();
  const rule = make(svg, "line", { class: "rule", y1: EDGE.top, y2: height - EDGE.bottom, visibility: "hidden" });
  const named = (fpr) => curves.map((name) => `${data.names[name]} ${percent(tprAt(state.chosen.roc[name], fpr))}`);
  const areas = curves.map((name) => `${data.names[name]} ${percent(state.chosen.metrics[name].auroc)}`).join(", ");
  return {
    title: `ROC of ${inside.name} against ${state.chosen.name}. ${areas ? `Area: ${areas}.` : "No labels, no curve."}`,
    count: 101,
    at: (pixel) => Math.round(linear(EDGE.left, width - EDGE.right, 0, 100)(pixel)),
    mark(index) {
      rule.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index === null) return;
      rule.setAttribute("x1", x(index));
      rule.setAttribute("x2", x(index));
    },
    say: (index) => `FPR ${index}%: TPR ${named(index).join(", ")}`,
    rows: () => [
      ["FPR", ...curves.map((name) => `TPR, ${data.names[name]}`)],
      Array.from({ length: 21 }, (_, index) => [
        `${5 * index}%`,
        ...curves.map((name) => percent(tprAt(state.chosen.roc[name], 5 * index))),
      ]),
    ],
  };
}

function drawSpectrum(svg, width, height) {
  const { index: ranks, value: values, seen, count } = data.spectrum;
  const [high, low] = [values[0], values[values.length - 1]];
  const x = linear(1, Math.max(count, 2), EDGE.left, width - EDGE.right);
  const y = logarithmic(low < high ? low : high / 10, high, height - EDGE.bottom, EDGE.top);
  for (const tick of logTicks(low < high ? low : high / 10, high)) leftTick(svg, width, y(tick), brief(tick));
  const step = Math.max(tickStep(count), 1);
  const ticks = [1, ...Array.from({ length: Math.floor(count / step) }, (_, index) => (index + 1) * step)];
  bottomAxis(svg, width, height, x, ticks, String, "direction, strongest first");
  const points = ranks.map((rank, index) => `${x(rank).toFixed(1)},${y(values[index]).toFixed(1)}`);
  make(svg, "polyline", { class: "curve in", points: points.join(" ") });
  const dot = make(svg, "circle", { class: "here", r: 5, visibility: "hidden" });
  return {
    title: `Spectrum: ${count} eigenvalues, ${seen} of them above rounding, from ${brief(high)} to ${brief(low)}.`,
    count: ranks.length,
    at: (pixel) => ranks.findLastIndex((rank) => x(rank) <= Math.max(pixel, x(1))),
    mark(index) {
      dot.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index === null) return;
      dot.setAttribute("cx", x(ranks[index]));
      dot.setAttribute("cy", y(values[index]));
    },
    say: (index) => `Eigenvalue ${ranks[index]} of ${count}: ${brief(values[index])}`,
    rows: () => [["Direction", "Eigenvalue"], ranks.map((rank, index) => [String(rank), brief(values[index])])],
  };
}
