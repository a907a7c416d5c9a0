"use strict";
// What every chart needs: elements, words for numbers, scales, axes, and values read by pointer or arrow keys.

const byId = (id) => document.getElementById(id);

function make(parent, name, attributes = {}, text = null) {
  const inSvg = name === "svg" || parent.namespaceURI.endsWith("svg");
  const element = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

// Rounded as Python rounds, so that the page agrees with its tables: of the two exact ties, x.25 goes down.
const percent = (value) => `${(value % 1 === 0.25 ? value - 0.05 : value).toFixed(1)}%`;

function brief(value) {
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

function table(host, headings, rows) {
  host.replaceChildren();
  const drawn = make(host, "table");
  const head = make(make(drawn, "thead"), "tr");
  for (const heading of headings) make(head, "th", { scope: "col", class: "number" }, heading);
  const body = make(drawn, "tbody");
  for (const row of rows) {
    const line = make(body, "tr");
    for (const cell of row) make(line, "td", { class: "number" }, cell);
  }
}

// A chart. `draw(svg, width)` draws it and returns how to read it: `count` values, `at(x)` the one at a pixel,
// `mark(index)` shows where it is, `say(index)` puts it in words; `rows()` gives headings and all values.
function chart(id, height, draw) {
  const host = byId(id);
  if (!host) return () => {};
  const readout = byId(`${id}-readout`);
  const details = document.querySelector(`[data-table="${id}"]`);
  const hint = "Point at the chart, or move to it and press the arrow keys, to read values.";
  let reader = null;
  let cursor = null;

  function read(index) {
    cursor = index === null ? null : Math.min(Math.max(index, 0), reader.count - 1);
    reader.mark(cursor);
    readout.textContent = cursor === null ? hint : reader.say(cursor);
  }
  function fill() {
    if (details.open) table(details.querySelector("div"), ...reader.rows());
  }
  function redraw() {
    const width = Math.floor(host.clientWidth);
    if (width < 80) return;
    host.replaceChildren();
    const tall = typeof height === "function" ? height(width) : height;
    const svg = make(host, "svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, "aria-hidden": "true" });
    reader = draw(svg, width, tall);
    host.setAttribute("aria-label", `${reader.title} The arrow keys read values.`);
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
    const here = cursor === null ? -1 : cursor;
    const moves = { ArrowRight: here + 1, ArrowLeft: here < 0 ? last : here - 1, Home: 0, End: last, Escape: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(moves[event.key]);
  });
  details.addEventListener("toggle", fill);
  new ResizeObserver(redraw).observe(host);
  redraw();
  return redraw;
}
