"use strict";
// The state of the page, which is the threshold and the selected set, and the elements that depend on it.

const data = JSON.parse(byId("page-data").textContent);
const indSet = data.sets.find((set) => set.role === "in");
const state = { step: data.start, selected: null, moveThreshold() {}, moveRoc() {}, stepAt: () => 0 };

// The in-distribution set, if there is one, and the selected set.
function shownSets() {
  return indSet && state.selected !== indSet ? [indSet, state.selected] : [state.selected];
}

function showTiles() {
  for (const tile of document.querySelectorAll("[data-metric]")) {
    const metric = tile.dataset.metric;
    const { pnml, baseline } = state.selected.metrics || {};
    tile.querySelector(".value").textContent = pnml ? percent(pnml[metric]) : "–";
    tile.querySelector(".meters .pnml").style.width = pnml ? `${pnml[metric]}%` : 0;
    tile.querySelector(".meters .baseline").style.width = baseline ? `${baseline[metric]}%` : 0;
    const difference = baseline ? pnml[metric] - baseline[metric] : 0;
    const sign = difference < 0 ? "−" : "+";
    tile.querySelector(".details").textContent = baseline
      ? `${data.names.baseline} ${percent(baseline[metric])} (${sign}${Math.abs(difference).toFixed(1)} points)`
      : "";
  }
}

function showCounts() {
  const set = state.selected;
  const kept = set.kept[state.step];
  const shown = {
    flagged: [(set.count - kept).toLocaleString("en"), `${percent(100 - (100 * kept) / set.count)} of ${set.name}`],
    kept: [kept.toLocaleString("en"), percent((100 * kept) / set.count)],
    median: [`${formatNumber(set.median)}`, "nats; larger = less trustworthy"],
  };
  for (const tile of document.querySelectorAll("[data-count]")) {
    const [value, details] = shown[tile.dataset.count];
    tile.querySelector(".value").textContent = value;
    tile.querySelector(".details").textContent = details;
  }
}

function showOutcomes() {
  for (const row of document.querySelectorAll(".outcome tr[data-set]")) {
    const set = row.dataset.set === "calibration" ? data.calibration : data.sets[row.dataset.set];
    const flagged = set.count - set.kept[state.step];
    const rate = (100 * flagged) / set.count;
    row.querySelector(".bar > span").style.width = `${rate}%`;
    row.querySelector(".flagged").textContent = flagged.toLocaleString("en");
    row.querySelector(".count").textContent = set.count.toLocaleString("en");
    row.querySelector(".rate").textContent = percent(rate);
    row.classList.toggle("selected", set === state.selected);
  }
}

// Of the flagged samples of the selected set: how many each layer gave away, and all early and all late ones.
function showDepths() {
  const caption = byId("depths-caption");
  if (!caption) return;
  const { name, count, kept, flaggedBy } = state.selected;
  const flagged = count - kept[state.step];
  const share = (part) => (flaggedBy && flagged ? (100 * part) / flagged : null);
  const totals = { early: 0, late: 0, lengths: 0 };
  caption.textContent = `${flagged.toLocaleString("en")} flagged samples of ${name}, by the layer that gave them away, from input to output`;
  for (const row of document.querySelectorAll(".depths tbody tr")) {
    const found = flaggedBy ? flaggedBy[row.dataset.depth][state.step] : 0;
    const rate = share(found);
    totals[row.className] += found;
    row.querySelector(".bar > span").style.width = `${rate || 0}%`;
    row.querySelector(".flagged").textContent = flaggedBy ? found.toLocaleString("en") : "–";
    row.querySelector(".rate").textContent = rate === null ? "–" : percent(rate);
  }
  for (const total of document.querySelectorAll("[data-total]")) {
    const rate = share(totals[total.dataset.total]);
    total.textContent = rate === null ? "" : `${percent(rate)} of the flagged`;
  }
}

function showDecisions() {
  for (const sample of document.querySelectorAll(".sample")) {
    const isFlagged = !(Number(sample.dataset.regret) <= data.grid[state.step]);
    sample.classList.toggle("is-flagged", isFlagged);
    sample.querySelector(".decision").textContent = isFlagged ? "flagged" : "kept";
  }
}

function updateThreshold() {
  const slider = byId("threshold");
  const value = data.grid[state.step];
  const flags = shownSets().map(({ name, kept, count }) => `${percent(100 - (100 * kept[state.step]) / count)} of ${name}`);
  slider.value = state.step;
  slider.setAttribute("aria-valuetext", `${formatNumber(value)} nats: flags ${flags.join(", ")}`);
  byId("threshold-value").textContent = `${formatNumber(value)} nats`;
  byId("reset").disabled = state.step === data.start;
  state.moveThreshold();
  state.moveRoc();
  showCounts();
  showOutcomes();
  showDepths();
  showDecisions();
}

function selectSet(index, redraws) {
  state.selected = data.sets[index];
  const shown = shownSets();
  for (const part of document.querySelectorAll(".of-set")) part.hidden = !shown.includes(data.sets[part.dataset.set]);
  const charted = data.calibration ? [...shown, data.calibration] : shown;
  const shades = [["shade flagged", "solid: flagged"], ["shade kept", "pale: kept"]];
  legend("histogram", [...charted.map((set) => [set.role, `${set.name} (${set.count.toLocaleString("en")})`]), ...shades]);
  legend("pvalues", [[state.selected.role, state.selected.name], ...shades, ["even", "what the calibration data give"]]);
  const curves = ["pnml", "baseline"].filter((name) => state.selected.roc && state.selected.roc[name]);
  legend("roc", curves.map((name) => [name, `${data.names[name]} ${percent(state.selected.metrics[name].auroc)}`]));
  showTiles();
  for (const redraw of redraws) redraw();
  updateThreshold();
}

function start() {
  const others = data.sets.map((set, index) => [set, index]).filter(([set]) => set.role !== "in");
  const first = others.length ? others[0][1] : 0;
  state.selected = data.sets[first];
  const redraws = [
    chart("histogram", (width) => (width < 500 ? 250 : 300), drawHistogram),
    chart("pvalues", 200, drawPValues),
    chart("roc", (width) => Math.min(width, 340), drawRoc),
  ];
  chart("spectrum", (width) => Math.min(width, 340), drawSpectrum);
  if (data.spectrum) {
    legend("spectrum", [["in", `${data.spectrum.rank} of ${data.spectrum.count} directions in the span of the training embeddings`]]);
  }
  const slider = byId("threshold");
  slider.max = data.grid.length - 1;
  slider.addEventListener("input", () => {
    state.step = Number(slider.value);
    updateThreshold();
  });
  byId("histogram").addEventListener("click", (event) => {
    state.step = state.stepAt(event.clientX - byId("histogram").getBoundingClientRect().left);
    updateThreshold();
  });
  byId("reset").textContent = `Reset to ${formatNumber(data.grid[data.start])} (${data.origin})`;
  byId("reset").addEventListener("click", () => {
    state.step = data.start;
    updateThreshold();
    slider.focus();
  });
  for (const radio of document.querySelectorAll('input[name="set"]')) {
    radio.checked = Number(radio.value) === first;
    radio.addEventListener("change", () => selectSet(Number(radio.value), redraws));
  }
  selectSet(first, redraws);
}

if (data.sets.length) start();
