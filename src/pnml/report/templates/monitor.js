"use strict";
// The charts of a monitor: evidence, flagged samples over time, and p-values.

const data = JSON.parse(byId("page-data").textContent);
const count = (value) => value.toLocaleString("en");
const share = (value) => percent(100 * value);

function evidenceText(log10) {
  return log10 >= 4 ? `10^${log10.toFixed(1)}` : formatNumber(10 ** log10);
}

function partOf(sample) {
  const part = data.parts.findLast(({ first }) => first <= sample);
  return part ? ` (${part.name})` : "";
}

const powerOfTen = (power) => (power ? `10${[...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit] || "⁻").join("")}` : "1");

// The axis of samples, where its parts (days, files) begin, and the sample since which the stream is changed.
function sampleAxis(svg, width, height) {
  const x = linear(0, data.count, EDGE.left, width - EDGE.right);
  const step = Math.max(tickStep(data.count) / 2, 1);
  const ticks = Array.from({ length: Math.floor(data.count / step) + 1 }, (_, index) => index * step);
  bottomAxis(svg, width, height, x, ticks, count, "sample of the stream");
  let free = -Infinity;
  for (const part of data.parts) {
    const at = x(part.first - 1);
    append(svg, "line", { class: "part", x1: at, x2: at, y1: EDGE.top, y2: height });
    const text = part.name.length > 22 ? `${part.name.slice(0, 21)}…` : part.name;
    if (at < free || at + 6.5 * text.length > width - 130) continue; // the title of the axis is at its right end
    free = at + 6.5 * text.length + 8;
    append(svg, "text", { class: "label", x: at + 4, y: height - 4 }, text);
  }
  if (data.since !== null) {
    const at = x(data.since);
    const isLeft = at < width / 2;
    append(svg, "line", { class: "since", x1: at, x2: at, y1: EDGE.top, y2: height - EDGE.bottom });
    const label = { class: "since-label", x: at + (isLeft ? 6 : -6), y: EDGE.top + 10, "text-anchor": isLeft ? "start" : "end" };
    append(svg, "text", label, `since ${count(data.since)}`);
  }
  return x;
}

function drawEvidence(svg, width, height) {
  const values = data.evidence;
  const last = (index) => Math.min((index + 1) * data.window, data.count);
  const high = Math.max(1.15 * data.limit, ...values);
  const low = Math.min(0, ...values);
  const y = linear(low, high, height - EDGE.bottom, EDGE.top);
  const step = Math.max(tickStep(high - low), 1);
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) leftTick(svg, width, y(tick), powerOfTen(tick));
  const x = sampleAxis(svg, width, height);
  append(svg, "line", { class: "alarm", x1: EDGE.left, x2: width - EDGE.right, y1: y(data.limit), y2: y(data.limit) });
  const points = values.map((value, index) => `${x(last(index)).toFixed(1)},${y(value).toFixed(1)}`);
  append(svg, "polyline", { class: "curve evidence", points: [`${x(0)},${y(0)}`, ...points].join(" ") });
  const dot = append(svg, "circle", { class: "marker", r: 5, visibility: "hidden" });
  const range = (index) => `${count(index * data.window + 1)} to ${count(last(index))}`;
  return {
    title: `Evidence over ${count(data.count)} samples, ${evidenceText(Math.max(0, ...values))} at most; ${evidenceText(data.limit)} raises an alarm.`,
    count: values.length,
    at: (pixel) => Math.floor(linear(EDGE.left, width - EDGE.right, 0, data.count)(pixel) / data.window),
    mark: (index) => highlight(dot, index, () => ({ cx: x(last(index)), cy: y(values[index]) })),
    describe: (index) => `Samples ${range(index)}${partOf(index * data.window + 1)}: evidence ${evidenceText(values[index])} at most`,
    rows: () => [["Samples", "Largest evidence"], values.map((value, index) => [range(index), evidenceText(value)])],
  };
}

function drawRates(svg, width, height) {
  const { rates, expected } = data;
  const high = Math.min(1, 1.1 * Math.max(expected.high, ...rates.map((rate) => rate.high)));
  const y = linear(0, high, height - EDGE.bottom, EDGE.top);
  const step = tickStep(high);
  for (let tick = 0; tick <= high; tick += step) leftTick(svg, width, y(tick), `${formatNumber(100 * tick)}%`);
  const inner = { x: EDGE.left, width: width - EDGE.right - EDGE.left };
  append(svg, "rect", { class: "expected-range", ...inner, y: y(expected.high), height: y(expected.low) - y(expected.high) });
  append(svg, "line", { class: "expected-share", x1: EDGE.left, x2: width - EDGE.right, y1: y(expected.share), y2: y(expected.share) });
  const x = sampleAxis(svg, width, height);
  const place = (rate) => ({ x: x(rate.first - 1), width: Math.max(x(rate.last) - x(rate.first - 1) - 1, 1) });
  for (const rate of rates) {
    const { x: from, width: wide } = place(rate);
    const side = data.since !== null && rate.last >= data.since ? "later" : "before";
    append(svg, "rect", { class: `seen ${side}`, x: from, width: wide, y: y(rate.high), height: Math.max(y(rate.low) - y(rate.high), 1) });
    append(svg, "line", { class: `seen-share ${side}`, x1: from, x2: from + wide, y1: y(rate.share), y2: y(rate.share) });
  }
  const band = append(svg, "rect", { class: "cursor", y: EDGE.top, height: y(0) - EDGE.top, visibility: "hidden" });
  const range = (rate) => `${count(rate.first)} to ${count(rate.last)}`;
  const found = rates.map((rate) => rate.share);
  return {
    title: `Share of flagged samples over ${count(data.count)} samples, from ${share(Math.min(...found))} to ${share(Math.max(...found))}; ${share(expected.share)} expected.`,
    count: rates.length,
    at: (pixel) => Math.max(rates.findLastIndex((rate) => x(rate.first - 1) <= pixel), 0),
    mark: (index) => highlight(band, index, () => place(rates[index])),
    describe: (index) => `Samples ${range(rates[index])}${partOf(rates[index].first)}: ${share(rates[index].share)} flagged, ${share(rates[index].low)} to ${share(rates[index].high)} with 95% confidence`,
    rows: () => [["Samples", "Flagged", "At least", "At most"], rates.map((rate) => [range(rate), share(rate.share), share(rate.low), share(rate.high)])],
  };
}

function drawPValues(svg, width, height) {
  const periods = data.pValues.map(({ name, bins }) => {
    const total = bins.reduce((sum, one) => sum + one, 0);
    return { name, shares: bins.map((one) => one / total) };
  });
  const bins = periods[0].shares.length;
  const even = 1 / bins;
  const high = 1.1 * Math.max(2 * even, ...periods.flatMap((period) => period.shares));
  const x = linear(0, bins, EDGE.left, width - EDGE.right);
  const y = linear(0, high, height - EDGE.bottom, EDGE.top);
  const step = tickStep(high);
  for (let tick = 0; tick <= high; tick += step) leftTick(svg, width, y(tick), `${formatNumber(100 * tick)}%`);
  bottomAxis(svg, width, height, x, [0, 5, 10, 15, 20], (bin) => formatNumber(bin / bins), "p-value");
  const gap = x(1) - x(0) - 2;
  periods.forEach(({ shares }, number) => {
    const group = append(svg, "g", { class: `bars ${number ? "later" : ""}` });
    const wide = gap / periods.length;
    shares.forEach((one, bin) => append(group, "rect", { x: x(bin) + 1 + number * wide, width: wide, y: y(one), height: y(0) - y(one) }));
  });
  append(svg, "line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: y(0), y2: y(0) });
  append(svg, "line", { class: "even-share", x1: EDGE.left, x2: width - EDGE.right, y1: y(even), y2: y(even) });
  const band = append(svg, "rect", { class: "cursor", y: EDGE.top, height: y(0) - EDGE.top, visibility: "hidden" });
  const range = (bin) => `${formatNumber(bin / bins)} to ${formatNumber((bin + 1) / bins)}`;
  const all = (bin) => periods.map(({ name, shares }) => `${share(shares[bin])} of ${name}`).join(", ");
  return {
    title: `Histogram of the p-values; ${share(even)} in each bar of a stream like the calibration data, at most ${formatNumber(even)} have ${all(0)}.`,
    count: bins,
    at: (pixel) => Math.floor(linear(EDGE.left, width - EDGE.right, 0, bins)(pixel)),
    mark: (index) => highlight(band, index, () => ({ x: x(index), width: x(1) - x(0) })),
    describe: (index) => `p-values ${range(index)}: ${all(index)}`,
    rows: () => [
      ["p-value", ...periods.map(({ name }) => name)],
      Array.from({ length: bins }, (_, bin) => [range(bin), ...periods.map(({ shares }) => share(shares[bin]))]),
    ],
  };
}

const lowChart = (width) => (width < 500 ? 220 : 260);
legend("evidence", [["evidence", `largest evidence of every ${count(data.window)} samples, logarithmic`], ["alarm", `${evidenceText(data.limit)} raises an alarm`]]);
const seen = data.since === null ? [["in", "flagged, with the interval of 95% confidence"]] : [["in", "flagged before the change, with the interval of 95% confidence"], ["later", "flagged since"]];
legend("rates", [...seen, ["expected", `${share(data.expected.share)} expected, with the range for this calibration set`]]);
legend("p-values", [...data.pValues.map(({ name }, number) => [number ? "later" : "in", name]), ["even-line", "like the calibration data"]]);
chart("evidence", lowChart, drawEvidence);
chart("rates", lowChart, drawRates);
chart("p-values", lowChart, drawPValues);
