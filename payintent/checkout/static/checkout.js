// The checkout's main script: follows the payment, counts down, and communicates with the shop's page
// that embeds the checkout. The page also works without this script.
// @ts-check

const POLL_FIRST_MS = 2_000;
const POLL_MAX_MS = 15_000;
const POLL_BEHIND_MS = 30_000; // while a stream is open, because some proxies drop events
const FETCH_TIMEOUT_MS = 15_000;
const RETURN_FIRST_MS = 3_000; // time to read the result, and to choose to stay
const RETURN_AFTER_MS = 15_000; // until then, the shop may not have been notified of the payment
const RETURN_ASK_MS = 1_000;
const COPIED_MS = 2_000;
const LEAVING_MS = 30_000; // includes the service's requests to two providers
const MINUTE_MS = 60_000;
const ANNOUNCED_MINUTES = 5; // the last minute is also announced

/** @type {Record<string, string>} */
const words = {/* texts */}; // the service inserts the texts that the script uses, in the page's language

/**
 * Adds the texts that another script uses.
 * @param {Record<string, string>} more
 */
export function learn(more) {
  Object.assign(words, more);
}

/**
 * Returns a text with its values inserted.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function word(key, values = {}) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/**
 * Calls the service. Returns null if the service cannot be reached. Any other error is a bug and is thrown.
 * @param {string} url
 * @param {object | null} [body] to post
 * @param {number} [ms]
 */
export async function reach(url, body = null, ms = FETCH_TIMEOUT_MS) {
  const limit = new AbortController(); // Safari 15 has no AbortSignal.timeout
  const timer = setTimeout(() => limit.abort(), ms);
  /** @type {RequestInit} */
  const how = { cache: "no-store", signal: limit.signal };
  if (body) {
    const headers = { "Content-Type": "application/json" };
    Object.assign(how, { method: "POST", headers, body: JSON.stringify(body) });
  }
  try {
    const answer = await fetch(url, how);
    const { ok, status, headers } = answer;
    return { ok, status, headers, text: await answer.text() };
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
export async function ask(url) {
  const answer = await reach(url);
  return answer?.ok ? parse(answer.text) : null;
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
const payment = () => document.querySelector("pay-status");
/** The page's own URL, because the browser may show the URL of a submitted form. */
const page = () => new URL(payment()?.dataset.page ?? location.href, location.href).href;

// While a form is being submitted, its effects must not reload the page, and it must not be submitted again

let leftAt = -LEAVING_MS;
const isLeaving = () => performance.now() - leftAt < LEAVING_MS;

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // a script submits the form
  if (isLeaving()) event.preventDefault();
  else leftAt = performance.now();
});
addEventListener("pageshow", (event) => {
  if (event.persisted) leftAt = -LEAVING_MS; // the buyer went back
});

// The current version of the page

/** @type {Promise<boolean> | null} */
let swapping = null;

/**
 * Shows the current version of the page. Returns false if it could not be fetched.
 * @param {boolean} [anyway] reload even if nothing seems to have changed
 */
export function swap(anyway = false) {
  if (isLeaving()) return Promise.resolve(false);
  swapping ??= renew(anyway)
    .catch((error) => !report(error))
    .finally(() => {
      swapping = null;
    });
  return swapping;
}

/** Fetches the current version of the page. Returns null if the service cannot be reached or responds with an error. */
export async function fetched() {
  const answer = await reach(page());
  return answer?.ok ? new DOMParser().parseFromString(answer.text, "text/html") : null;
}

/** @param {boolean} anyway */
async function renew(anyway) {
  const next = await fetched();
  if (!next) return false;
  if (next.querySelector("[data-result]")) end(next);
  else if (anyway || isOther(next)) location.replace(page()); // the next step needs its own content security policy
  return true;
}

/** @param {Document} next */
function isOther(next) {
  /** @param {ParentNode} root */
  const mark = (root) => [
    /** @type {HTMLElement | null} */ (root.querySelector("pay-status"))?.dataset.version,
    root.querySelector("form.methods") !== null,
  ];
  return String(mark(document)) !== String(mark(next));
}

/**
 * Shows the result without leaving the page, and moves the focus to it, so that it is read aloud.
 * @param {Document} next
 */
function end(next) {
  const theirs = next.querySelector("main");
  if (theirs) document.querySelector("main")?.replaceWith(document.adoptNode(theirs));
  document.title = next.title;
  history.replaceState(null, "", page()); // a reload must not submit a form again
  /** @type {HTMLElement | null} */ (document.querySelector("[data-result]"))?.focus();
}

// The shop's page that embeds this page, if there is one

const shop = window.parent === window ? undefined : document.body.dataset.embed;
const OF_REFUSALS = {
  PG_UPSTREAM_ERROR: "problem_upstream",
  PG_NOT_AVAILABLE: "problem_unavailable",
  RATE_LIMITED: "sorry_many",
};
let choosing = false;

/**
 * Sends a message to the shop's page, if it embeds this page.
 * @param {string} type
 * @param {object} [fields]
 */
export function tell(type, fields = {}) {
  if (!shop) return;
  const nonce = document.body.dataset.nonce;
  window.parent.postMessage({ source: "payintent", version: 1, nonce, type, ...fields }, shop);
}

/** @param {MessageEvent} event */
function hear(event) {
  const { data } = event;
  if (event.origin !== shop || event.source !== window.parent) return;
  if (data?.source !== "payintent" || data.nonce !== document.body.dataset.nonce) return;
  if (data.type === "submit") submit();
  if (data.type === "update") update(data);
}

function submit() {
  const form = /** @type {HTMLFormElement | null} */ (document.querySelector("form.methods"));
  if (form) form.querySelector("button")?.click(); // Safari 15 has no requestSubmit
  else tell("refused", { code: "INVALID_CHECKOUT_STATE", message: "no method can be selected now" });
}

/** @param {{ locale?: string, country?: string }} wanted */
function update(wanted) {
  const url = new URL(page());
  if (wanted.locale) url.searchParams.set("lang", wanted.locale);
  if (wanted.country) url.searchParams.set("country", wanted.country);
  if (url.href !== page()) location.replace(url);
}

/**
 * Selects a method through the API, so that the shop's page can perform actions that require the top page.
 * @param {HTMLFormElement} form
 */
async function choose(form) {
  if (choosing) return;
  choosing = true;
  leftAt = performance.now();
  warn("");
  let said;
  try {
    said = await select(selection(form));
  } catch (error) {
    said = { code: "WIDGET_FAILED", message: report(error) };
  }
  choosing = false;
  leftAt = -LEAVING_MS;
  if (said.next_action) {
    tell("next_action", { action: said.next_action });
    swap();
  } else {
    tell("refused", said);
    if (said.code === "WIDGET_FAILED") return;
    if (said.fds || (await swap()) === false || form.isConnected) refuse(said);
  }
}

/** @param {object} body */
async function select(body) {
  // The service calls the provider before it responds.
  const answer = await reach(`${payment()?.dataset.url}/quotes`, body, 3 * FETCH_TIMEOUT_MS);
  const said = answer && parse(answer.text);
  if (!said) return { code: "NETWORK_OFFLINE", message: "the service cannot be reached" };
  const retryAfter = answer.headers.get("Retry-After");
  const requestId = answer.headers.get("X-Request-Id");
  return { ...said, status: answer.status, requestId, retryAfter, busy: retryAfter !== null };
}

/** @param {HTMLFormElement} form */
function selection(form) {
  const fields = new FormData(form);
  const [method, currency, total] = String(fields.get("method")).split("|");
  const locale = document.documentElement.lang;
  /** @type {Record<string, unknown>} */
  const body = { payment_method_id: Number(method), currency, expected_total_amount: total, locale };
  for (const name of ["country", "payer_email"]) {
    if (fields.get(name)) body[name] = fields.get(name);
  }
  return body;
}

/** @param {{ code?: string, fds?: object, busy?: boolean }} said */
async function refuse({ code, fds, busy }) {
  if (fds) return void swap(true);
  if (code === "CONFLICT" && !busy) return void (await offerAnew());
  const known = /** @type {keyof typeof OF_REFUSALS} */ (code);
  warn(word(busy ? "problem_busy" : (OF_REFUSALS[known] ?? "problem_other")));
}

/** Shows the current totals, and preserves the email address that the buyer entered. */
async function offerAnew() {
  const theirs = (await fetched())?.querySelector("form.methods");
  const mine = document.querySelector("form.methods");
  if (theirs && mine) {
    const name = "input[name=payer_email]";
    const [typed, empty] = [mine.querySelector(name), theirs.querySelector(name)];
    if (typed && empty) empty.setAttribute("value", /** @type {HTMLInputElement} */ (typed).value);
    mine.replaceWith(document.adoptNode(theirs));
  }
  warn(word("problem_total"));
}

/**
 * Reports an error in this page, as opposed to an error of the service or the connection.
 * @param {unknown} error
 */
export function report(error) {
  console.error(error);
  warn(word("page_failed"));
  return String(error) || "the page failed";
}

/** @param {string} text */
function warn(text) {
  const old = document.getElementById("problem");
  if (text && old?.textContent === text) return; // so that it is not read aloud again
  old?.remove();
  if (!text) return;
  const place = Object.assign(document.createElement("p"), { id: "problem", className: "problem" });
  place.setAttribute("role", "alert");
  payment()?.before(place);
  place.textContent = text; // after insertion, because only changes are read aloud
}

if (shop) {
  addEventListener("message", hear);
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (!form.matches("form.methods")) return;
    event.preventDefault();
    choose(form);
  });
  document.addEventListener("change", (event) => {
    const chosen = /** @type {HTMLInputElement} */ (event.target);
    if (chosen.name === "method") tell("change", { kind: chosen.dataset.kind });
  });
  new ResizeObserver(() => {
    tell("resize", { height: Math.ceil(document.documentElement.getBoundingClientRect().height) });
  }).observe(document.body);
}

/** Follows the payment through an event stream, and also polls. */
class PayStatus extends HTMLElement {
  #wait = POLL_FIRST_MS;
  #timer = 0;
  #told = 0;
  /** @type {EventSource | null} */
  #stream = null;

  connectedCallback() {
    const status = this.querySelector("[data-result]")?.getAttribute("data-result");
    if (status) tell("result", { status });
    if (this.dataset.live === undefined) return;
    this.#told = Number(this.dataset.version);
    const look = () => this.#look();
    document.addEventListener("visibilitychange", look);
    addEventListener("pageshow", (event) => event.persisted && look());
    addEventListener("online", look);
    addEventListener("offline", () => this.#heard());
    addEventListener("pay:look", look);
    this.#heard();
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

  /** A hidden page does not keep a stream open, because browsers allow only a few and phones close them. */
  #look() {
    this.#close();
    if (document.hidden || !this.isConnected) return;
    this.#wait = POLL_FIRST_MS;
    this.#heard();
    this.#ask();
    this.#listen();
  }

  #listen() {
    if (document.hidden) return;
    this.#later();
    if (!("EventSource" in window)) return;
    const stream = new EventSource(`${this.dataset.url}/events`);
    this.#stream = stream;
    stream.addEventListener("open", () => this.#later());
    stream.addEventListener("error", () => this.#later());
    stream.addEventListener("status", (event) => this.#hear(JSON.parse(event.data)));
    stream.addEventListener("onchain", (event) => {
      dispatchEvent(new CustomEvent("pay:onchain", { detail: JSON.parse(event.data) }));
      tell("onchain", { progress: JSON.parse(event.data) });
    });
  }

  /** Polls again after a delay. This also retries a change that could not be shown. */
  #later() {
    clearTimeout(this.#timer);
    const streams = this.#stream?.readyState === 1;
    this.#timer = setTimeout(
      async () => {
        this.#wait = Math.min(this.#wait * 1.5, POLL_MAX_MS);
        await this.#ask();
        if (this.isConnected && !document.hidden) this.#later();
      },
      streams ? POLL_BEHIND_MS : this.#wait,
    );
  }

  async #ask() {
    try {
      const view = await ask(this.dataset.url ?? "");
      if (view?.fds) swap();
      else if (view) this.#hear(view);
    } catch (error) {
      report(error);
    }
  }

  /** @param {{ status: string, version: number, can?: { select: boolean } }} view */
  #hear({ status, version, can }) {
    this.#heard();
    const over = can?.select === false && this.querySelector("form.methods") !== null;
    if (version === Number(this.dataset.version) && !over) return;
    if (version !== this.#told) tell("status", { status });
    this.#told = version;
    swap();
  }

  /** Shows whether the browser is offline. */
  #heard() {
    const place = this.querySelector("[data-notice]");
    const text = navigator.onLine ? "" : word("offline");
    if (place && place.textContent !== text) place.textContent = text;
  }
}

/** Counts down the last minutes. At zero, it only queries the service, which decides whether the time is over. */
class PayCountdown extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    const { now, until, minutes: from } = this.dataset;
    const ahead = Date.parse(now ?? "") - Date.now(); // how far the service's clock is ahead of the buyer's
    const [shown, spoken] = [document.createElement("span"), document.createElement("span")];
    spoken.className = "hidden"; // read aloud, but not every minute
    spoken.setAttribute("role", "status");
    const tick = () => {
      const left = Date.parse(until ?? "") - Date.now() - ahead;
      const minutes = Math.ceil(left / MINUTE_MS);
      if (minutes > Number(from)) return;
      if (!spoken.isConnected) this.replaceChildren(shown, spoken);
      shown.textContent =
        minutes > 1 ? word("minutes_left", { minutes }) : word(left > 0 ? "minute_left" : "time_over");
      const text = minutes < 2 || minutes === ANNOUNCED_MINUTES ? shown.textContent : "";
      if (spoken.textContent !== text) spoken.textContent = text;
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

/** Copies a text, and confirms it. */
class PayCopy extends HTMLElement {
  connectedCallback() {
    const button = this.querySelector("button");
    if (!button) return;
    button.hidden = !navigator.clipboard; // insecure pages do not have a clipboard
    const usual = button.textContent;
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(this.dataset.text ?? "");
      } catch {
        return; // the browser does not allow it; the buyer can select and copy the text
      }
      button.textContent = word("copied");
      setTimeout(() => {
        button.textContent = usual;
      }, COPIED_MS);
    });
  }
}

/** Returns to the shop when it has been notified of the payment or after a timeout, once per tab. */
class PayReturn extends HTMLElement {
  #stopped = false;

  connectedCallback() {
    if (window.top !== window || sessionStorage.getItem(this.#memory)) return;
    this.hidden = false;
    this.querySelector("button")?.addEventListener("click", () => this.#stop());
    this.#go(Date.now() + RETURN_AFTER_MS);
  }

  disconnectedCallback() {
    this.#stopped = true;
  }

  get #memory() {
    return `payintent:returned:${this.dataset.url}`;
  }

  #stop() {
    this.#stopped = true;
    this.hidden = true;
    sessionStorage.setItem(this.#memory, "stays");
    /** @type {HTMLElement | null} */ (this.closest("[data-result]"))?.focus();
  }

  /** @param {number} until */
  async #go(until) {
    await pause(RETURN_FIRST_MS);
    while (!this.#stopped && Date.now() < until) {
      const view = await ask(this.dataset.url ?? "");
      if (view?.merchant_told) break;
      await pause(RETURN_ASK_MS);
    }
    if (this.#stopped) return;
    sessionStorage.setItem(this.#memory, "gone"); // a buyer who goes back wants to stay
    location.assign(this.dataset.to ?? "");
  }
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
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

/** Starts the page's behaviour after its content is shown, so that a wallet's button does not wait for a stream. */
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
const result = document.querySelector("[data-result]")?.getAttribute("data-result");
tell("ready", { status: result ?? payment()?.dataset.status });
