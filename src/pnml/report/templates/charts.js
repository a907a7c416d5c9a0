"use strict";
// The charts. They use `data`, `state` and `indSet` of page.js.

// Draw the outline of a histogram, to stand behind the bars of another.
function outline(svg, set, x, y) {
  const points = set.bins.flatMap((count, index) => {
    const level = y((100 * count) / set.count);
    return [`${x(data.edges[index])},${level}`, `${x(data.edges[index + 1])},${level}`];
  });
  const [first, last] = [x(data.edges[0]), x(data.edges[data.edges.length - 1])];
  append(svg, "polygon", { class: "calibration-area", points: [`${first},${y(0)}`, ...points, `${last},${y(0)}`].join(" ") });
}

// Draw the bars of a set from the zero line at `base` to `tip`, the outline of the set `behind` behind them, and return
// a function that moves the threshold.
function bars(svg, width, set, behind, x, base, tip) {
  const shares = set.bins.map((count) => (100 * count) / set.count);
  const highest = Math.max(...shares, ...(behind ? behind.bins.map((count) => (100 * count) / behind.count) : []));
  const y = linear(0, highest, base, tip < base ? tip + 20 : tip - 20);
  const step = tickStep(highest);
  for (let value = tip < base ? 0 : step; value <= highest; value += step) leftTick(svg, width, y(value), `${formatNumber(value)}%`);
  if (behind) outline(svg, behind, x, y);
  const top = Math.min(base, tip);
  const clips = {};
  for (const side of ["kept", "flagged"]) {
    const id = `clip-${set.role}-${side}`;
    const clip = append(append(svg, "clipPath", { id }), "rect", { y: top, height: Math.abs(base - tip) });
    const group = append(svg, "g", { class: `bars ${set.role} ${side}`, "clip-path": `url(#${id})` });
    shares.forEach((share, index) => {
      if (share === 0) return;
      const from = x(data.edges[index]);
      const barWidth = Math.max(x(data.edges[index + 1]) - from - 1, 1);
      const barHeight = Math.max(Math.abs(base - y(share)), 1);
      append(group, "rect", { x: from, width: barWidth, y: tip < base ? base - barHeight : base, height: barHeight });
    });
    clips[side] = clip;
  }
  append(svg, "line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: base, y2: base });
  const y0 = tip < base ? tip + 12 : tip - 4;
  const kept = append(svg, "text", { class: "note", x: EDGE.left + 8, y: y0 });
  const flagged = append(svg, "text", { class: "note", x: width - EDGE.right - 4, y: y0, "text-anchor": "end" });
  return (threshold, at) => {
    setAttributes(clips.kept, { x: 0, width: at });
    setAttributes(clips.flagged, { x: at, width: width - at });
    const share = (100 * set.kept[threshold]) / set.count;
    kept.textContent = `kept ${percent(share)}`;
    flagged.textContent = `flagged ${percent(100 - share)}`;
  };
}

function drawHistogram(svg, width, height) {
  const shown = shownSets();
  const edges = data.edges;
  const last = edges.length - 1;
  const x = logarithmic(edges[0], edges[last], EDGE.left, width - EDGE.right);
  const floor = height - EDGE.bottom;
  const middle = shown.length > 1 ? (EDGE.top + floor) / 2 : floor;
  const moves = shown.map((set, below) => {
    return bars(svg, width, set, below ? null : data.calibration, x, middle, below ? floor : EDGE.top);
  });
  const described = data.calibration ? [...shown, data.calibration] : shown;
  const band = append(svg, "rect", { class: "cursor", y: EDGE.top, height: floor - EDGE.top, visibility: "hidden" });
  const line = append(svg, "line", { class: "threshold", y1: 0, y2: floor + 6 });
  svg.append(...svg.querySelectorAll(".note")); // above the line, which may cross them
  bottomAxis(svg, width, height, x, logTicks(edges[0], edges[last]), formatNumber, "regret in nats, logarithmic");
  state.moveThreshold = () => {
    const at = x(data.grid[state.step]);
    setAttributes(line, { x1: at, x2: at });
    moves.forEach((move) => move(state.step, at));
  };
  state.moveThreshold();
  // The slider moves evenly over the grid, whose steps are even on this axis: a click sets the nearest one.
  state.stepAt = (pixel) => data.grid.reduce((best, value, step) => (Math.abs(x(value) - pixel) < Math.abs(x(data.grid[best]) - pixel) ? step : best), 0);
  const range = (index) => `${index ? formatNumber(edges[index]) : "0"} to ${formatNumber(edges[index + 1])}`;
  const share = (set, index) => percent((100 * set.bins[index]) / set.count);
  const medians = described.map((set) => `${set.name}, median ${formatNumber(set.median)} nats`).join("; ");
  return {
    title: `Histogram of the regrets. ${medians}.`,
    count: last,
    at: (pixel) => Math.floor(linear(EDGE.left, width - EDGE.right, 0, last)(pixel)),
    mark: (index) => highlight(band, index, () => ({ x: x(edges[index]), width: x(edges[index + 1]) - x(edges[index]) })),
    describe: (index) => `${range(index)} nats: ${described.map((set) => `${share(set, index)} of ${set.name}`).join(", ")}`,
    rows: () => [
      ["Regret in nats", ...described.map((set) => set.name)],
      Array.from({ length: last }, (_, index) => [range(index), ...described.map((set) => share(set, index))]),
    ],
  };
}

function drawPValues(svg, width, height) {
  const { name, role, count, pBins } = state.selected;
  const shares = (pBins || []).map((found) => (100 * found) / count);
  const even = 100 / (shares.length || 1);
  const highest = Math.max(...shares, 1.2 * even);
  const x = linear(0, 1, EDGE.left, width - EDGE.right);
  const y = linear(0, highest, height - EDGE.bottom, EDGE.top);
  const step = tickStep(highest);
  for (let value = 0; value <= highest; value += step) leftTick(svg, width, y(value), `${formatNumber(value)}%`);
  bottomAxis(svg, width, height, x, [0, 0.2, 0.4, 0.6, 0.8, 1], formatNumber, "p-value");
  const rate = data.calibration ? data.calibration.rate : 0;
  shares.forEach((share, index) => {
    const [from, to] = [index / shares.length, (index + 1) / shares.length];
    const middle = Math.min(Math.max(rate, from), to);
    for (const [side, start, end] of [["flagged", from, middle], ["kept", middle, to]]) {
      if (end <= start || share === 0) continue;
      const inset = end === to ? 1 : 0;
      append(append(svg, "g", { class: `bars ${role} ${side}` }), "rect", { x: x(start), width: Math.max(x(end) - x(start) - inset, 1), y: y(share), height: y(0) - y(share) });
    }
  });
  append(svg, "line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: y(0), y2: y(0) });
  append(svg, "line", { class: "even", x1: EDGE.left, x2: width - EDGE.right, y1: y(even), y2: y(even) });
  const band = append(svg, "rect", { class: "cursor", y: EDGE.top, height: y(0) - EDGE.top, visibility: "hidden" });
  const bin = (index) => `${formatNumber(index / shares.length)} to ${formatNumber((index + 1) / shares.length)}`;
  return {
    title: shares.length ? `Histogram of the p-values of ${name}; ${percent(shares[0])} are ${formatNumber(1 / shares.length)} or smaller.` : `No p-values of ${name}.`,
    count: Math.max(shares.length, 1),
    at: (pixel) => Math.floor(linear(EDGE.left, width - EDGE.right, 0, shares.length)(pixel)),
    mark: (index) => highlight(band, index, () => ({ x: x(index / (shares.length || 1)), width: x(1 / (shares.length || 1)) - x(0) })),
    describe: (index) => (shares.length ? `p-value ${bin(index)}: ${percent(shares[index])} of ${name}` : `No p-values of ${name}.`),
    rows: () => [["p-value", name], shares.map((share, index) => [bin(index), percent(share)])],
  };
}

// Return the TPR of a curve at an FPR: that of the last point with at most this FPR.
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
  append(svg, "line", { class: "chance", x1: x(0), y1: y(0), x2: x(100), y2: y(100) });
  const curves = ["pnml", "baseline"].filter((name) => state.selected.roc && state.selected.roc[name]);
  for (const name of [...curves].reverse()) {
    const curve = state.selected.roc[name];
    const points = curve.fpr.map((fpr, index) => `${x(fpr).toFixed(1)},${y(curve.tpr[index]).toFixed(1)}`);
    append(svg, "polyline", { class: `curve ${name}`, points: points.join(" ") });
  }
  const marker = append(svg, "circle", { class: "marker", r: 5, visibility: "hidden" });
  state.moveRoc = () => {
    if (!state.selected.roc) return;
    const fpr = (100 * state.selected.kept[state.step]) / state.selected.count;
    const tpr = (100 * indSet.kept[state.step]) / indSet.count;
    setAttributes(marker, { cx: x(fpr), cy: y(tpr), visibility: "visible" });
  };
  state.moveRoc();
  const rule = append(svg, "line", { class: "rule", y1: EDGE.top, y2: height - EDGE.bottom, visibility: "hidden" });
  const valuesAt = (fpr) => curves.map((name) => `${data.names[name]} ${percent(tprAt(state.selected.roc[name], fpr))}`);
  const areas = curves.map((name) => `${data.names[name]} ${percent(state.selected.metrics[name].auroc)}`).join(", ");
  return {
    title: `ROC of ${indSet.name} against ${state.selected.name}. ${areas ? `Area: ${areas}.` : "Not available without labels."}`,
    count: 101,
    at: (pixel) => Math.round(linear(EDGE.left, width - EDGE.right, 0, 100)(pixel)),
    mark: (index) => highlight(rule, index, () => ({ x1: x(index), x2: x(index) })),
    describe: (index) => `FPR ${index}%: TPR ${valuesAt(index).join(", ")}`,
    rows: () => [
      ["FPR", ...curves.map((name) => `TPR, ${data.names[name]}`)],
      Array.from({ length: 21 }, (_, index) => [
        `${5 * index}%`,
        ...curves.map((name) => percent(tprAt(state.selected.roc[name], 5 * index))),
      ]),
    ],
  };
}

function drawSpectrum(svg, width, height) {
  const { index: indices, value: values, rank, count } = data.spectrum;
  const [high, low] = [values[0], values[values.length - 1]];
  const x = linear(1, Math.max(count, 2), EDGE.left, width - EDGE.right);
  const y = logarithmic(low < high ? low : high / 10, high, height - EDGE.bottom, EDGE.top);
  for (const tick of logTicks(low < high ? low : high / 10, high)) leftTick(svg, width, y(tick), formatNumber(tick));
  const step = Math.max(tickStep(count), 1);
  const ticks = [1, ...Array.from({ length: Math.floor(count / step) }, (_, index) => (index + 1) * step)];
  bottomAxis(svg, width, height, x, ticks, String, "index, largest eigenvalue first");
  const points = indices.map((number, index) => `${x(number).toFixed(1)},${y(values[index]).toFixed(1)}`);
  append(svg, "polyline", { class: "curve in", points: points.join(" ") });
  const dot = append(svg, "circle", { class: "marker", r: 5, visibility: "hidden" });
  return {
    title: `Spectrum: ${count} eigenvalues, ${rank} of them above rounding error, from ${formatNumber(high)} to ${formatNumber(low)}.`,
    count: indices.length,
    at: (pixel) => indices.findLastIndex((number) => x(number) <= Math.max(pixel, x(1))),
    mark: (index) => highlight(dot, index, () => ({ cx: x(indices[index]), cy: y(values[index]) })),
    describe: (index) => `Eigenvalue ${indices[index]} of ${count}: ${formatNumber(values[index])}`,
    rows: () => [["Index", "Eigenvalue"], indices.map((number, index) => [String(number), formatNumber(values[index])])],
  };
}
