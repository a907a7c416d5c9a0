"use strict";
// Shared by all charts: elements, number formats, scales, ticks, and reading values by pointer or arrow keys.

const byId = (id) => document.getElementById(id);

function setAttributes(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
}

function append(parent, name, attributes = {}, text = null) {
  const inSvg = name === "svg" || parent.namespaceURI.endsWith("svg");
  const element = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  setAttributes(element, attributes);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

// Rounds half to even as Python does, so that charts and tables agree: of the exact ties, x.25 is rounded down.
const percent = (value) => `${(value % 1 === 0.25 ? value - 0.05 : value).toFixed(1)}%`;

function formatNumber(value) {
  if (value === 0) return "0";
  return value >= 0.001 && value < 10000 ? String(Number(value.toPrecision(3))) : value.toExponential(1).replace(".0e", "e");
}

function linear(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low)) * (to - from);
}

function logarithmic(low, high, from, to) {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(Math.min(Math.max(value, low), high)));
}

function logTicks(low, high) {
  const ticks = [];
  const decades = Math.log10(high / low);
  const factors = decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
  const every = Math.max(1, Math.ceil(decades / 7));
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    if (power % every !== 0) continue;
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

function tickStep(high) {
  const rough = high / 2;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [5, 2, 1].find((factor) => factor * power <= rough);
}

function renderTable(host, headings, rows) {
  host.replaceChildren();
  const table = append(host, "table");
  const head = append(append(table, "thead"), "tr");
  for (const heading of headings) append(head, "th", { scope: "col", class: "number" }, heading);
  const body = append(table, "tbody");
  for (const row of rows) {
    const line = append(body, "tr");
    for (const cell of row) append(line, "td", { class: "number" }, cell);
  }
}

// A chart. `draw(svg, width, height)` draws it and returns an object to read its values: `title`, `count` values,
// `at(x)` the index at a pixel, `mark(index)` highlights a value, `describe(index)` returns it as text, and `rows()`
// returns the headings and all values.
function chart(id, height, draw) {
  const host = byId(id);
  if (!host) return () => {};
  const readout = byId(`${id}-readout`);
  const details = document.querySelector(`[data-table="${id}"]`);
  const hint = "Point at the chart, or focus it and press the arrow keys, to read values.";
  let reader = null;
  let cursor = null;

  function read(index) {
    cursor = index === null ? null : Math.min(Math.max(index, 0), reader.count - 1);
    reader.mark(cursor);
    readout.textContent = cursor === null ? hint : reader.describe(cursor);
  }
  function fill() {
    if (details.open) renderTable(details.querySelector("div"), ...reader.rows());
  }
  function redraw() {
    const width = Math.floor(host.clientWidth);
    if (width < 80) return;
    host.replaceChildren();
    const svgHeight = typeof height === "function" ? height(width) : height;
    const svg = append(host, "svg", { width, height: svgHeight, viewBox: `0 0 ${width} ${svgHeight}`, "aria-hidden": "true" });
    reader = draw(svg, width, svgHeight);
    host.setAttribute("aria-label", `${reader.title} Use the arrow keys to read values.`);
    read(cursor);
    fill();
  }
  const follow = (event) => read(reader.at(event.clientX - host.getBoundingClientRect().left));
  host.addEventListener("pointermove", follow);
  host.addEventListener("pointerdown", follow);
  host.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && read(null));
  host.addEventListener("blur", () => read(null));
  host.addEventListener("keydown", (event) => {
    const last = reader.count - 1;
    const current = cursor === null ? -1 : cursor;
    const moves = { ArrowRight: current + 1, ArrowLeft: current < 0 ? last : current - 1, Home: 0, End: last, Escape: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(moves[event.key]);
  });
  details.addEventListener("toggle", fill);
  new ResizeObserver(redraw).observe(host);
  redraw();
  return redraw;
}

// The legend of a chart: what each colour means.
function legend(id, entries) {
  const host = byId(`${id}-legend`);
  if (!host) return;
  host.replaceChildren();
  for (const [kind, text] of entries) {
    const entry = append(host, "span", { class: `entry ${kind}` });
    append(entry, "span", { class: "key" });
    entry.append(text);
  }
}
