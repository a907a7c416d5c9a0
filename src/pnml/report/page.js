"use strict";
// The page's state, the threshold and the chosen set, and everything that follows them.

const data = JSON.parse(byId("numbers").textContent);
const inside = data.sets.find((one) => one.role === "in");
const state = { step: data.start, chosen: null, moveThreshold() {}, moveRoc() {} };

function legend(id, entries) {
  const host = byId(`${id}-legend`);
  if (!host) return;
  host.replaceChildren();
  for (const [kind, text] of entries) {
    const entry = make(host, "span", { class: `entry ${kind}` });
    make(entry, "span", { class: "key" });
    entry.append(text);
  }
}

function showTiles() {
  for (const tile of document.querySelectorAll("[data-metric]")) {
    const metric = tile.dataset.metric;
    const { pnml, baseline } = state.chosen.metrics || {};
    tile.querySelector(".value").textContent = pnml ? percent(pnml[metric]) : "–";
    tile.querySelector(".ours").style.width = pnml ? `${pnml[metric]}%` : 0;
    tile.querySelector(".theirs").style.width = baseline ? `${baseline[metric]}%` : 0;
    const ahead = baseline ? pnml[metric] - baseline[metric] : 0;
    const sign = ahead < 0 ? "−" : "+";
    tile.querySelector(".beside").textContent = baseline
      ? `${data.names.baseline} ${percent(baseline[metric])} (${sign}${Math.abs(ahead).toFixed(1)} points)`
      : "";
  }
}

function showCounts() {
  const one = state.chosen;
  const kept = one.kept[state.step];
  const shown = {
    flagged: [(one.count - kept).toLocaleString("en"), `${percent(100 - (100 * kept) / one.count)} of ${one.name}`],
    kept: [kept.toLocaleString("en"), percent((100 * kept) / one.count)],
    median: [`${brief(one.median)}`, "nats; larger = less trustworthy"],
  };
  for (const tile of document.querySelectorAll("[data-count]")) {
    const [value, beside] = shown[tile.dataset.count];
    tile.querySelector(".value").textContent = value;
    tile.querySelector(".beside").textContent = beside;
  }
}

function showOutcomes() {
  const rates = { in: "TPR", out: "TNR", unlabelled: "flagged" };
  for (const row of document.querySelectorAll(".outcome tbody tr")) {
    const one = data.sets[row.dataset.set];
    const kept = one.kept[state.step];
    const flagged = one.count - kept;
    const rate = (100 * (one.role === "in" ? kept : flagged)) / one.count;
    row.querySelector(".bar > span").style.width = `${(100 * flagged) / one.count}%`;
    row.querySelector(".flagged").textContent = flagged.toLocaleString("en");
    row.querySelector(".rate").textContent = `${rates[one.role]} ${percent(rate)}`;
    row.classList.toggle("chosen", one === state.chosen);
  }
}

function showVerdicts() {
  for (const sample of document.querySelectorAll(".sample")) {
    const isFlagged = Number(sample.dataset.regret) > data.grid[state.step];
    sample.classList.toggle("is-flagged", isFlagged);
    sample.querySelector(".verdict").textContent = isFlagged ? "flagged" : "kept";
  }
}

function moved() {
  const slider = byId("threshold");
  const value = data.grid[state.step];
  const { name, kept, count } = state.chosen;
  const flags = `flags ${percent(100 - (100 * kept[state.step]) / count)} of ${name}`;
  const keeps = inside ? `keeps ${percent((100 * inside.kept[state.step]) / inside.count)} of ${inside.name}, ` : "";
  slider.value = state.step;
  slider.setAttribute("aria-valuetext", `${brief(value)} nats: ${keeps}${flags}`);
  byId("threshold-value").textContent = `${brief(value)} nats`;
  byId("reset").disabled = state.step === data.start;
  state.moveThreshold();
  state.moveRoc();
  showCounts();
  showOutcomes();
  showVerdicts();
}

function choose(index, redraws) {
  state.chosen = data.sets[index];
  for (const shelf of document.querySelectorAll(".shelf")) {
    const one = data.sets[shelf.dataset.set];
    shelf.hidden = one !== state.chosen && one !== inside;
  }
  const shown = inside && state.chosen !== inside ? [inside, state.chosen] : [state.chosen];
  legend("histogram", shown.map((one) => [one.role, `${one.name} (${one.count.toLocaleString("en")})`]));
  const curves = ["pnml", "baseline"].filter((name) => state.chosen.roc && state.chosen.roc[name]);
  legend("roc", curves.map((name) => [name, `${data.names[name]} ${percent(state.chosen.metrics[name].auroc)}`]));
  showTiles();
  for (const redraw of redraws) redraw();
  moved();
}

function start() {
  const others = data.sets.map((one, index) => [one, index]).filter(([one]) => one.role !== "in");
  const first = others.length ? others[0][1] : 0;
  state.chosen = data.sets[first];
  const redraws = [
    chart("histogram", (width) => (width < 500 ? 250 : 300), drawHistogram),
    chart("roc", (width) => Math.min(width, 340), drawRoc),
  ];
  chart("spectrum", (width) => Math.min(width, 340), drawSpectrum);
  if (data.spectrum) {
    legend("spectrum", [["in", `${data.spectrum.seen} of ${data.spectrum.count} directions seen in training`]]);
  }
  const slider = byId("threshold");
  slider.max = data.grid.length - 1;
  slider.addEventListener("input", () => {
    state.step = Number(slider.value);
    moved();
  });
  byId("reset").textContent = `Back to ${brief(data.grid[data.start])} (${data.origin})`;
  byId("reset").addEventListener("click", () => {
    state.step = data.start;
    moved();
    slider.focus();
  });
  for (const radio of document.querySelectorAll('input[name="set"]')) {
    radio.checked = Number(radio.value) === first;
    radio.addEventListener("change", () => choose(Number(radio.value), redraws));
  }
  choose(first, redraws);
}

if (data.sets.length) start();
