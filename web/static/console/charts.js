// Draws every [data-chart] with Chart.js from the JSON beside it. The server made the words:
// hover values are the very strings of the table beneath.

const drawn = new Map();

function ink(figure, name) {
  const probe = document.createElement("span");
  probe.className = name;
  figure.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

function dataset(figure, series) {
  const colour = ink(figure, series.ink);
  return {
    label: series.label,
    data: series.values,
    shown: series.shown,
    stack: series.stack,
    backgroundColor: colour,
    hoverBackgroundColor: colour,
    maxBarThickness: 36,
    borderRadius: 1,
  };
}

function ticks(figure, axis) {
  return {
    color: ink(figure, "faint"),
    font: { family: getComputedStyle(figure).fontFamily, size: 11 },
    maxRotation: 0,
    autoSkipPadding: 16,
    ...axis,
  };
}

function shorten(unit) {
  const style = unit === "usd"
    ? { style: "currency", currency: "USD", notation: "compact", maximumSignificantDigits: 3 }
    : { notation: "compact", maximumFractionDigits: 1 };
  const format = new Intl.NumberFormat("en-US", style);
  return (value) => format.format(value);
}

function tooltip(figure, data) {
  const colour = (name) => ink(figure, name);
  return {
    backgroundColor: colour("tip-paper"),
    titleColor: colour("tip-text"),
    bodyColor: colour("tip-text"),
    padding: 10,
    cornerRadius: 6,
    boxWidth: 8,
    boxHeight: 8,
    boxPadding: 4,
    titleFont: { family: getComputedStyle(figure).fontFamily, size: 12, weight: 600 },
    bodyFont: { family: getComputedStyle(figure).fontFamily, size: 12 },
    filter: (item) => item.raw > 0,
    itemSort: (a, b) => b.datasetIndex - a.datasetIndex,
    callbacks: {
      title: (items) => (items.length ? data.titles[items[0].dataIndex] : ""),
      label: (item) => ` ${item.dataset.label}  ${item.dataset.shown[item.dataIndex]}`,
      footer: (items) => (items.length && data.totals ? data.totals[items[0].dataIndex] : ""),
    },
    footerColor: colour("tip-text"),
    footerFont: { family: getComputedStyle(figure).fontFamily, size: 12, weight: 500 },
  };
}

function options(figure, data) {
  return {
    responsive: true,
    maintainAspectRatio: false,
    animation: false,
    interaction: { mode: "index", intersect: false },
    plugins: { legend: { display: false }, tooltip: tooltip(figure, data) },
    scales: {
      x: { stacked: true, grid: { display: false }, border: { color: ink(figure, "chart-line") },
        ticks: ticks(figure, {}) },
      y: { stacked: true, beginAtZero: true, border: { display: false },
        grid: { color: ink(figure, "chart-line"), drawTicks: false },
        ticks: ticks(figure, { callback: shorten(data.unit), padding: 8, maxTicksLimit: 5 }) },
    },
  };
}

function point(figure, index) {
  const chart = drawn.get(figure);
  const active = chart.data.datasets.map((_, datasetIndex) => ({ datasetIndex, index }));
  const bar = chart.getDatasetMeta(0).data[index];
  chart.setActiveElements(active);
  chart.tooltip.setActiveElements(active, { x: bar?.x ?? 0, y: chart.chartArea.top + 40 });
  chart.update("none");
}

function rest(figure) {
  const chart = drawn.get(figure);
  chart.setActiveElements([]);
  chart.tooltip.setActiveElements([], { x: 0, y: 0 });
  chart.update("none");
}

function walkByKeyboard(figure, canvas, last) {
  let index = -1;
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: Math.min(index + 1, last), ArrowLeft: Math.max(index - 1, 0),
      Home: 0, End: last };
    if (!(event.key in moves)) return;
    event.preventDefault();
    index = moves[event.key];
    point(figure, index);
  });
  canvas.addEventListener("blur", () => rest(figure));
}

function draw(figure) {
  const data = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
  const canvas = figure.querySelector("canvas");
  if (!drawn.has(figure)) walkByKeyboard(figure, canvas, data.labels.length - 1);
  drawn.get(figure)?.destroy();
  drawn.set(figure, new window.Chart(canvas, {
    type: "bar",
    data: { labels: data.labels, datasets: data.series.map((series) => dataset(figure, series)) },
    options: options(figure, data),
  }));
}

function drawAll() {
  for (const figure of [...drawn.keys()]) {
    if (figure.isConnected) continue;
    drawn.get(figure).destroy();
    drawn.delete(figure);
  }
  for (const figure of document.querySelectorAll("[data-chart]")) draw(figure);
}

drawAll();
document.addEventListener("penstock:theme", drawAll);
document.addEventListener("htmx:afterSettle", drawAll);
