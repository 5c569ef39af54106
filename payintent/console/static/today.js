/** Today, live: figures from a stream, else by polling; the chart is drawn from the page's own table. */

/**
 * @typedef {{ setData: (data: number[][]) => void,
 *   setSize: (size: { width: number, height: number }) => void, destroy: () => void }} Chart
 * @typedef {{ new (options: object, data: number[][], target: Element): Chart,
 *   tzDate: (date: Date, zone: string) => Date }} ChartKind
 */

const POLL_MS = 5_000;
const CHART_PX = 240;
const WHOLE = [1, 2, 5].flatMap((first) => [0, 1, 2, 3, 4, 5, 6].map((zeros) => first * 10 ** zeros)).sort((a, b) => a - b);
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
  stream.addEventListener("open", () => say("Live"));
  stream.addEventListener("figures", (event) => show(JSON.parse(event.data).html));
  stream.addEventListener("error", () => {
    if (stream?.readyState === EventSource.CLOSED) {
      poll();
    } else {
      say("Connecting");
    }
  });
}

/** Ask for the figures now and then: a proxy may cut streams off, or the session has ended. */
async function poll() {
  stream?.close();
  stream = null;
  try {
    const answer = await fetch(`/today/figures${query}`, { cache: "no-store", redirect: "error" });
    if (!answer.ok) {
      throw new Error(String(answer.status));
    }
    show(await answer.text());
    say("Updating every 5 seconds");
  } catch {
    say("Not live. Reload the page.");
  }
  if (pause.getAttribute("aria-pressed") === "false") {
    timer = window.setTimeout(poll, POLL_MS);
  }
}

/** @param {string} words */
function say(words) {
  state.textContent = words;
}

/**
 * Replace the parts whose figures have changed; what has the focus keeps it.
 * @param {string} html
 */
function show(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const part of template.content.querySelectorAll("[data-part]")) {
    const name = part.getAttribute("data-part") ?? "";
    const present = figures.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (present && present.outerHTML !== part.outerHTML) {
      replace(present, part);
    }
  }
  draw();
}

/**
 * @param {Element} present
 * @param {Element} part
 */
function replace(present, part) {
  const focus = present.contains(document.activeElement) ? document.activeElement : null;
  const number = focus ? [...present.querySelectorAll("a, [tabindex]")].indexOf(focus) : -1;
  const scrolled = present.querySelector(".table")?.scrollLeft ?? 0;
  present.replaceWith(part);
  part.querySelector(".table")?.scrollTo({ left: scrolled, behavior: "instant" });
  const again = number < 0 ? null : part.querySelectorAll("a, [tabindex]")[number];
  if (again instanceof HTMLElement) {
    again.focus({ preventScroll: true });
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
  const place = /** @type {HTMLElement} */ (document.getElementById("chart"));
  const kind = /** @type {{ uPlot?: ChartKind }} */ (window).uPlot;
  if (!kind) {
    return;
  }
  place.hidden = false;
  if (chart) {
    chart.setData(readTable());
    return;
  }
  chart = new kind(options(kind, place.clientWidth - 10), readTable(), place);
}

/**
 * @param {ChartKind} kind
 * @param {number} width
 */
function options(kind, width) {
  const style = getComputedStyle(document.documentElement);
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--soft"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  };
  const times = { ...axis, space: 60, values: (/** @type {unknown} */ _, /** @type {number[]} */ at) => at.map(shortTime) };
  const counts = { ...axis, size: 50, incrs: WHOLE };
  const most = (/** @type {unknown} */ _, __ = 0, /** @type {number} */ top = 0) => [0, Math.max(4, top * 1.1)];
  return {
    width,
    height: CHART_PX,
    tzDate: (/** @type {number} */ seconds) => kind.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: most } },
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
 * The day at midnight, else the time, in UTC.
 * @param {number} seconds
 */
function shortTime(seconds) {
  const written = new Date(seconds * 1000).toISOString();
  return written.slice(11, 16) === "00:00" ? written.slice(5, 10) : written.slice(11, 16);
}

function redraw() {
  chart?.destroy();
  chart = null;
  draw();
}

pause.addEventListener("click", () => {
  const paused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(paused));
  window.clearTimeout(timer);
  stream?.close();
  stream = null;
  if (paused) {
    say("Paused");
  } else {
    connect();
  }
});

/** Load the library of the chart, which takes longer to run than the whole page to be painted. */
function loadChart() {
  const script = document.createElement("script");
  script.src = figures.dataset.script ?? "";
  script.addEventListener("load", draw);
  document.head.append(script);
}

function start() {
  const place = /** @type {HTMLElement} */ (document.getElementById("chart"));
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", "Chart of payments by outcome. The table below has the same figures.");
  pause.hidden = false;
  pause.setAttribute("aria-pressed", "false");
  document.getElementById("reload")?.remove();
  new ResizeObserver(() => {
    chart?.setSize({ width: place.clientWidth - 10, height: CHART_PX });
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  loadChart();
  connect();
}

// Figures first: what runs before the page is painted makes it late.
requestAnimationFrame(() => setTimeout(start));
