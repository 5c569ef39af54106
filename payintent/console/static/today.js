/** Update the figures from a stream, or by polling if the stream fails. Draw the chart from the page's table. */

/**
 * @typedef {{ setData: (data: number[][]) => void,
 *   setSize: (size: { width: number, height: number }) => void, destroy: () => void }} Chart
 * @typedef {{ new (options: object, data: number[][], target: Element): Chart,
 *   tzDate: (date: Date, zone: string) => Date }} ChartKind
 */

const POLL_MS = 5_000;
const CHART_PX = 240;
const WHOLE_NUMBERS = [1, 2, 5].flatMap((first) => [0, 1, 2, 3, 4, 5, 6].map((zeros) => first * 10 ** zeros)).sort((a, b) => a - b);
const SERIES = [
  { label: "Paid", color: "--good", dash: [] },
  { label: "Failed", color: "--bad", dash: [8, 4] },
  { label: "Expired", color: "--warn", dash: [2, 3] },
  { label: "Cancelled", color: "--soft", dash: [12, 3, 2, 3] },
];

const figures = /** @type {HTMLElement} */ (document.getElementById("figures"));
const state = /** @type {HTMLElement} */ (document.getElementById("live-state"));
const pause = /** @type {HTMLButtonElement} */ (document.getElementById("pause"));
const query = `?period=${encodeURIComponent(figures.dataset.period ?? "")}`;
/** @type {EventSource | null} */
let stream = null;
let timer = 0;
/** @type {Chart | null} */
let chart = null;

function connect() {
  stream = new EventSource(`/today/events${query}`);
  stream.addEventListener("open", () => showState("Live"));
  stream.addEventListener("figures", (event) => show(JSON.parse(event.data).html));
  stream.addEventListener("error", () => {
    if (stream?.readyState === EventSource.CLOSED) {
      poll();
    } else {
      showState("Connecting");
    }
  });
}

/** Poll the figures, because a proxy may close streams or the session may have ended. */
async function poll() {
  stream?.close();
  stream = null;
  try {
    const response = await fetch(`/today/figures${query}`, { cache: "no-store", redirect: "error" });
    if (!response.ok) {
      throw new Error(String(response.status));
    }
    show(await response.text());
    showState("Updating every 5 seconds");
  } catch {
    showState("Not live. Reload the page.");
  }
  if (pause.getAttribute("aria-pressed") === "false") {
    timer = window.setTimeout(poll, POLL_MS);
  }
}

/** @param {string} text */
function showState(text) {
  state.textContent = text;
}

/**
 * Replace the elements whose figures have changed, and preserve the focus.
 * @param {string} html
 */
function show(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const newElement of template.content.querySelectorAll("[data-part]")) {
    const name = newElement.getAttribute("data-part") ?? "";
    const oldElement = figures.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (oldElement && oldElement.outerHTML !== newElement.outerHTML) {
      replace(oldElement, newElement);
    }
  }
  draw();
}

/**
 * @param {Element} oldElement
 * @param {Element} newElement
 */
function replace(oldElement, newElement) {
  const focus = oldElement.contains(document.activeElement) ? document.activeElement : null;
  const number = focus ? [...oldElement.querySelectorAll("a, [tabindex]")].indexOf(focus) : -1;
  const scrollLeft = oldElement.querySelector(".table")?.scrollLeft ?? 0;
  oldElement.replaceWith(newElement);
  newElement.querySelector(".table")?.scrollTo({ left: scrollLeft, behavior: "instant" });
  const focusTarget = number < 0 ? null : newElement.querySelectorAll("a, [tabindex]")[number];
  if (focusTarget instanceof HTMLElement) {
    focusTarget.focus({ preventScroll: true });
  }
}

/** @returns {number[][]} seconds, then the counts of each series */
function readTable() {
  const rows = [...document.querySelectorAll("#points tbody tr")];
  const seconds = rows.map((row) => Date.parse(row.querySelector("time")?.dateTime ?? "") / 1000);
  const counts = SERIES.map((_, at) =>
    rows.map((row) => Number(row.querySelectorAll("td")[at]?.textContent)),
  );
  return [seconds, ...counts];
}

function draw() {
  const container = /** @type {HTMLElement} */ (document.getElementById("chart"));
  const plotClass = /** @type {{ uPlot?: ChartKind }} */ (window).uPlot;
  if (!plotClass) {
    return;
  }
  container.hidden = false;
  if (chart) {
    chart.setData(readTable());
    return;
  }
  chart = new plotClass(options(plotClass, container.clientWidth - 10), readTable(), container);
}

/**
 * @param {ChartKind} plotClass
 * @param {number} width
 */
function options(plotClass, width) {
  const style = getComputedStyle(document.documentElement);
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--soft"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  };
  const times = { ...axis, space: 60, values: (/** @type {unknown} */ _, /** @type {number[]} */ at) => at.map(shortTime) };
  const counts = { ...axis, size: 50, incrs: WHOLE_NUMBERS };
  const yRange = (/** @type {unknown} */ _, __ = 0, /** @type {number} */ top = 0) => [0, Math.max(4, top * 1.1)];
  return {
    width,
    height: CHART_PX,
    tzDate: (/** @type {number} */ seconds) => plotClass.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: yRange } },
    axes: [times, counts],
    series: [
      { label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
      ...SERIES.map(({ label, color: name, dash }) => ({
        label,
        dash,
        stroke: color(name),
        width: 2,
        points: { show: false },
      })),
    ],
  };
}

/**
 * Format a time in UTC: the day if it is midnight, otherwise the hour and minute.
 * @param {number} seconds
 */
function shortTime(seconds) {
  const timestamp = new Date(seconds * 1000).toISOString();
  return timestamp.slice(11, 16) === "00:00" ? timestamp.slice(5, 10) : timestamp.slice(11, 16);
}

function redraw() {
  chart?.destroy();
  chart = null;
  draw();
}

pause.addEventListener("click", () => {
  const isPaused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(isPaused));
  window.clearTimeout(timer);
  stream?.close();
  stream = null;
  if (isPaused) {
    showState("Paused");
  } else {
    connect();
  }
});

/** Load the chart library, which takes longer to run than the page takes to paint. */
function loadChart() {
  const script = document.createElement("script");
  script.src = figures.dataset.script ?? "";
  script.addEventListener("load", draw);
  document.head.append(script);
}

function start() {
  const container = /** @type {HTMLElement} */ (document.getElementById("chart"));
  container.setAttribute("role", "img");
  container.setAttribute("aria-label", "Chart of payments by outcome. The table below has the same figures.");
  pause.hidden = false;
  pause.setAttribute("aria-pressed", "false");
  document.getElementById("reload")?.remove();
  new ResizeObserver(() => {
    chart?.setSize({ width: container.clientWidth - 10, height: CHART_PX });
  }).observe(container);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  loadChart();
  connect();
}

// Start after the first paint, because earlier scripts would delay it.
requestAnimationFrame(() => setTimeout(start));
