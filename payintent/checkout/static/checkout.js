// The checkout's main script: follows the payment and counts down. The page also works without this script.
// @ts-check

const POLL_FIRST_MS = 2_000;
const POLL_MAX_MS = 15_000;
const POLL_BEHIND_MS = 30_000; // while a stream is open, because some proxies drop events
const FETCH_TIMEOUT_MS = 15_000;
const RETURN_FIRST_MS = 3_000; // time to read the result, and to choose to stay
const RETURN_AFTER_MS = 15_000; // until then, the shop may not have been notified of the payment
const RETURN_POLL_MS = 1_000;
const COPIED_MS = 2_000;
export const LEAVING_MS = 45_000; // includes the service's requests to two providers
const MINUTE_MS = 60_000;
const ANNOUNCED_MINUTES = 5; // the last minute is also announced

/** @type {Record<string, string>} */
const texts = {/* texts */}; // the service inserts the texts that the script uses, in the page's language

/**
 * Adds the texts that another script uses.
 * @param {Record<string, string>} more
 */
export function addTexts(more) {
  Object.assign(texts, more);
}

/**
 * Returns a text with its values inserted.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  return (texts[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/**
 * Calls the service. Returns null if the service cannot be reached. Any other error is a bug and is thrown.
 * @param {string} url
 * @param {object | null} [body] to post
 * @param {number} [ms]
 */
export async function call(url, body = null, ms = FETCH_TIMEOUT_MS) {
  const controller = new AbortController(); // Safari 15 has no AbortSignal.timeout
  const timer = setTimeout(() => controller.abort(), ms);
  /** @type {RequestInit} */
  const options = { cache: "no-store", signal: controller.signal };
  if (body) {
    const headers = { "Content-Type": "application/json" };
    Object.assign(options, { method: "POST", headers, body: JSON.stringify(body) });
  }
  try {
    const response = await fetch(url, options);
    const { ok, status, headers } = response;
    return { ok, status, headers, text: await response.text() };
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Reads JSON from the service. Returns null if the service cannot be reached or responds with an error.
 * @param {string} url
 */
async function fetchJson(url) {
  const response = await call(url);
  return response?.ok ? parse(response.text) : null;
}

/**
 * Parses JSON. Returns null if the text is not JSON, for example because a proxy responded.
 * @param {string} text
 */
export function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @returns {HTMLElement | null} */
export const findPayment = () => document.querySelector("pay-status");
/** The page's own URL, because the browser may show the URL of a submitted form. */
export const pageUrl = () => new URL(findPayment()?.dataset.page ?? location.href, location.href).href;

// While a form is being submitted, its effects must not reload the page, and it must not be submitted again

let leftAt = -LEAVING_MS;
const isLeaving = () => performance.now() - leftAt < LEAVING_MS;
export const startLeaving = () => void (leftAt = performance.now());
export const stopLeaving = () => void (leftAt = -LEAVING_MS);

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // a script submits the form
  if (isLeaving()) event.preventDefault();
  else startLeaving();
});
addEventListener("pageshow", (event) => event.persisted && stopLeaving()); // the buyer went back

// Values that survive a reload of this tab

/** @param {string} key */
export function recall(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null; // the browser blocks storage
  }
}

/** @param {string} key @param {string} value */
export function remember(key, value) {
  try {
    sessionStorage.setItem(key, value);
  } catch {}
}

// The current version of the page

/** @type {Promise<boolean> | null} */
let pending = null;

/**
 * Shows the current version of the page. Returns false if it could not be fetched.
 * @param {boolean} [force] reload even if nothing seems to have changed
 */
export function showPage(force = false) {
  if (isLeaving()) return Promise.resolve(false);
  pending ??= reload(force)
    .catch((error) => !report(error))
    .finally(() => {
      pending = null;
    });
  return pending;
}

/** Fetches the current version of the page. Returns null if the service cannot be reached or responds with an error. */
export async function fetchPage() {
  const response = await call(pageUrl());
  return response?.ok ? new DOMParser().parseFromString(response.text, "text/html") : null;
}

/** @param {boolean} force */
async function reload(force) {
  const next = await fetchPage();
  if (!next) return false;
  if (next.querySelector("[data-result]")) showResult(next);
  else if (force || isDifferent(next)) location.replace(pageUrl()); // the next step needs its own content security policy
  return true;
}

/** @param {Document} next */
function isDifferent(next) {
  /** @param {ParentNode} root */
  const describe = (root) => [
    /** @type {HTMLElement | null} */ (root.querySelector("pay-status"))?.dataset.version,
    root.querySelector("form.methods") !== null,
  ];
  return String(describe(document)) !== String(describe(next));
}

/**
 * Shows the result without leaving the page, and moves the focus to it, so that it is read aloud.
 * @param {Document} next
 */
function showResult(next) {
  const main = next.querySelector("main");
  if (main) document.querySelector("main")?.replaceWith(document.adoptNode(main));
  document.title = next.title;
  history.replaceState(null, "", pageUrl()); // a reload must not submit a form again
  /** @type {HTMLElement | null} */ (document.querySelector("[data-result]"))?.focus();
}

// The shop's page that embeds this page, if there is one

/** The origin of the shop's page. */
export const shop = window.parent === window ? undefined : document.body.dataset.embed;

/**
 * Sends a message to the shop's page, if it embeds this page.
 * @param {string} type
 * @param {object} [fields]
 */
export function notify(type, fields = {}) {
  if (!shop) return;
  const nonce = document.body.dataset.nonce;
  window.parent.postMessage({ source: "payintent", version: 1, nonce, type, ...fields }, shop);
}

/**
 * Reports an error in this page, as opposed to an error of the service or the connection.
 * @param {unknown} error
 */
export function report(error) {
  console.error(error);
  warn(t("page_failed"));
  return String(error) || "the page failed";
}

/** @param {string} text */
export function warn(text) {
  const old = document.getElementById("problem");
  if (text && old?.textContent === text) return; // so that it is not read aloud again
  old?.remove();
  if (!text) return;
  const element = Object.assign(document.createElement("p"), { id: "problem", className: "problem" });
  element.setAttribute("role", "alert");
  findPayment()?.before(element);
  element.textContent = text; // after insertion, because only changes are read aloud
}

/** Follows the payment through an event stream, and also polls. */
class PayStatus extends HTMLElement {
  #pollDelay = POLL_FIRST_MS;
  #timer = 0;
  #version = 0;
  /** @type {EventSource | null} */
  #stream = null;

  connectedCallback() {
    const status = this.querySelector("[data-result]")?.getAttribute("data-result");
    if (status) notify("result", { status });
    if (this.dataset.live === undefined) return;
    this.#version = Number(this.dataset.version);
    const refresh = () => this.#refresh();
    document.addEventListener("visibilitychange", refresh);
    addEventListener("pageshow", (event) => event.persisted && refresh());
    addEventListener("online", refresh);
    addEventListener("offline", () => this.#showConnection());
    addEventListener("pay:look", refresh);
    this.#showConnection();
    this.#listen();
  }

  disconnectedCallback() {
    this.#close();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#stream?.close();
    this.#stream = null;
  }

  /** Polls now and opens a new stream. A hidden page has no stream: browsers allow only a few, and phones close them. */
  #refresh() {
    this.#close();
    if (document.hidden || !this.isConnected) return;
    this.#pollDelay = POLL_FIRST_MS;
    this.#showConnection();
    this.#poll();
    this.#listen();
  }

  #listen() {
    if (document.hidden) return;
    this.#schedulePoll();
    if (!("EventSource" in window)) return;
    const stream = new EventSource(`${this.dataset.url}/events`);
    this.#stream = stream;
    stream.onopen = stream.onerror = () => this.#schedulePoll();
    stream.addEventListener("status", (event) => this.#handleView(JSON.parse(event.data)));
    stream.addEventListener("onchain", (event) => {
      const progress = JSON.parse(event.data);
      dispatchEvent(new CustomEvent("pay:onchain", { detail: progress }));
      notify("onchain", { progress });
    });
  }

  /** Polls again after a delay. This also retries a change that could not be shown. */
  #schedulePoll() {
    clearTimeout(this.#timer);
    const isLive = this.#stream?.readyState === 1;
    this.#timer = setTimeout(
      async () => {
        this.#pollDelay = Math.min(this.#pollDelay * 1.5, POLL_MAX_MS);
        await this.#poll();
        if (this.isConnected && !document.hidden) this.#schedulePoll();
      },
      isLive ? POLL_BEHIND_MS : this.#pollDelay,
    );
  }

  async #poll() {
    try {
      const view = await fetchJson(this.dataset.url ?? "");
      if (view?.fds) showPage();
      else if (view) this.#handleView(view);
    } catch (error) {
      report(error);
    }
  }

  /** @param {{ status: string, version: number, can?: { select: boolean } }} view */
  #handleView({ status, version, can }) {
    this.#showConnection();
    const isOver = can?.select === false && this.querySelector("form.methods") !== null;
    if (version === Number(this.dataset.version) && !isOver) return;
    if (version !== this.#version) notify("status", { status });
    this.#version = version;
    showPage();
  }

  /** Shows whether the browser is offline. */
  #showConnection() {
    const notice = this.querySelector("[data-notice]");
    const text = navigator.onLine ? "" : t("offline");
    if (notice && notice.textContent !== text) notice.textContent = text;
  }
}

/** Counts down the last minutes. At zero, it only queries the service, which decides whether the time is over. */
class PayCountdown extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    const { now, until, minutes: from } = this.dataset;
    const offset = Date.parse(now ?? "") - Date.now(); // how far the service's clock is ahead of the buyer's
    const [display, live] = [document.createElement("span"), document.createElement("span")];
    live.className = "hidden"; // read aloud, but not every minute
    live.setAttribute("role", "status");
    const tick = () => {
      const left = Date.parse(until ?? "") - Date.now() - offset;
      const minutes = Math.ceil(left / MINUTE_MS);
      if (minutes > Number(from)) return;
      if (!live.isConnected) this.replaceChildren(display, live);
      display.textContent =
        minutes > 1 ? t("minutes_left", { minutes }) : t(left > 0 ? "minute_left" : "time_over");
      const text = minutes < 2 || minutes === ANNOUNCED_MINUTES ? display.textContent : "";
      if (live.textContent !== text) live.textContent = text;
      if (left > 0) return;
      clearInterval(this.#timer);
      dispatchEvent(new Event("pay:look"));
    };
    this.#timer = setInterval(tick, 1_000);
    tick();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }
}

/** Copies a text and shows a confirmation. If the browser refuses, shows the text selected, so that the buyer can copy it. */
class PayCopy extends HTMLElement {
  connectedCallback() {
    const button = this.querySelector("button");
    if (!button) return;
    button.hidden = !navigator.clipboard; // insecure pages do not have a clipboard
    const label = button.textContent;
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const text = this.dataset.text ?? "";
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const code = Object.assign(document.createElement("code"), { textContent: text });
        this.replaceChildren(code);
        return void getSelection()?.selectAllChildren(code);
      }
      button.textContent = t("copied");
      setTimeout(() => {
        button.textContent = label;
      }, COPIED_MS);
    });
  }
}

/** Returns to the shop when it has been notified of the payment or after a timeout, once per tab. */
class PayReturn extends HTMLElement {
  #isStopped = false;

  connectedCallback() {
    if (window.top !== window || recall(this.#storageKey)) return;
    this.hidden = false;
    this.querySelector("button")?.addEventListener("click", () => this.#stop());
    // If the buyer goes back, the browser may show this page as it was.
    addEventListener("pagehide", () => (this.hidden = this.#isStopped = true));
    this.#go(Date.now() + RETURN_AFTER_MS);
  }

  disconnectedCallback() {
    this.#isStopped = true;
  }

  get #storageKey() {
    return `payintent:returned:${this.dataset.url}`;
  }

  #stop() {
    this.#isStopped = true;
    this.hidden = true;
    remember(this.#storageKey, "stays");
    /** @type {HTMLElement | null} */ (this.closest("[data-result]"))?.focus();
  }

  /** @param {number} deadline */
  async #go(deadline) {
    await pause(RETURN_FIRST_MS);
    while (!this.#isStopped && Date.now() < deadline) {
      const view = await fetchJson(this.dataset.url ?? "");
      if (view?.merchant_told) break;
      await pause(RETURN_POLL_MS);
    }
    if (this.#isStopped) return;
    remember(this.#storageKey, "gone"); // a buyer who goes back wants to stay
    location.assign(this.dataset.to ?? "");
  }
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

class PayPrint extends HTMLElement {
  connectedCallback() {
    this.querySelector("button")?.addEventListener("click", () => print());
  }
}

/** Fetches the files for the next page after this page has loaded. */
function fetchAhead() {
  /** @type {HTMLElement | null} */
  const form = document.querySelector("form[data-ahead]");
  for (const url of form?.dataset.ahead?.split(" ") ?? []) {
    fetch(url, { priority: "low" }).catch(() => {}); // the next page then fetches the file
  }
}

/** Defines the elements after the page's content is shown, so that a wallet's button does not wait for a stream. */
function begin() {
  customElements.define("pay-status", PayStatus);
  customElements.define("pay-countdown", PayCountdown);
  customElements.define("pay-copy", PayCopy);
  customElements.define("pay-return", PayReturn);
  customElements.define("pay-print", PayPrint);
  document.documentElement.classList.add("scripted");
}

addEventListener("DOMContentLoaded", () => setTimeout(begin), { once: true }); // all scripts have run
addEventListener("load", fetchAhead, { once: true });
if (shop) import("./frame.js").catch(report);
