"use strict";
// Axes of charts, and highlighted values.

const EDGE = { left: 46, right: 14, top: 10, bottom: 40 };

function bottomAxis(svg, width, height, scale, ticks, format, title) {
  const y = height - EDGE.bottom;
  let previous = -Infinity;
  for (const tick of ticks) {
    const x = scale(tick);
    append(svg, "line", { class: "tick", x1: x, x2: x, y1: y, y2: y + 4 });
    if (x - previous < 34) continue;
    previous = x;
    append(svg, "text", { class: "label", x, y: y + 16, "text-anchor": "middle" }, format(tick));
  }
  append(svg, "text", { class: "label", x: width - EDGE.right, y: height - 4, "text-anchor": "end" }, title);
}

function leftTick(svg, width, y, text) {
  append(svg, "line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y });
  append(svg, "text", { class: "label", x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, text);
}

// Show an element at the value of an index, or hide it if the index is null.
function highlight(element, index, position) {
  setAttributes(element, index === null ? { visibility: "hidden" } : { visibility: "visible", ...position() });
}
