// The checkout's own behaviour: it follows the payment, counts down, and talks to the shop's page
// around it. Everything here is an addition: the page works without it.
// @ts-check

const POLL_FIRST_MS = 2_000;
const POLL_MAX_MS = 15_000;
const FETCH_TIMEOUT_MS = 15_000;
const RETURN_AFTER_MS = 15_000; // the shop may not have heard of the payment before
const MINUTE_MS = 60_000;
const ANNOUNCED_MINUTES = [5, 1];

/** @type {Record<string, string>} */
const words = JSON.parse(document.getElementById("words")?.textContent ?? "{}");

/**
 * Gives a text with its values.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function word(key, values = {}) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/**
 * Asks the service for JSON; null where it cannot be reached or does not know.
 * @param {string} url
 */
async function ask(url) {
  try {
    const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    const answer = await fetch(url, { cache: "no-store", signal });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

// The shop's page around this one, where there is one

const shop = document.body.dataset.embed;

/**
 * Tells the shop's page something; nobody where this page is not in its frame.
 * @param {string} type
 * @param {object} [fields]
 */
export function tell(type, fields = {}) {
  if (!shop || window.parent === window) return;
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
  if (form) form.requestSubmit();
  else tell("refused", { code: "INVALID_CHECKOUT_STATE", message: "nothing can be chosen now" });
}

/** @param {{ locale?: string, country?: string }} wanted */
function update(wanted) {
  const url = new URL(location.href);
  if (wanted.locale) url.searchParams.set("lang", wanted.locale);
  if (wanted.country) url.searchParams.set("country", wanted.country);
  if (url.href !== location.href) location.replace(url);
}

/** Selects through the API, so that the shop's page can do what has to be done at top level. */
async function choose(/** @type {SubmitEvent} */ event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const fields = new FormData(form);
  const [method, currency, total] = String(fields.get("method")).split("|");
  /** @type {Record<string, unknown>} */
  const body = { payment_method_id: Number(method), currency, expected_total_amount: total };
  for (const name of ["country", "payer_email"]) {
    if (fields.get(name)) body[name] = fields.get(name);
  }
  body.locale = document.documentElement.lang;
  const url = /** @type {HTMLElement} */ (document.querySelector("pay-status")).dataset.url;
  try {
    const answer = await fetch(`${url}/quotes`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(2 * FETCH_TIMEOUT_MS),
    });
    const said = await answer.json();
    const requestId = answer.headers.get("X-Request-Id");
    if (!answer.ok || said.fds) tell("refused", { status: answer.status, requestId, ...said });
    else tell("next_action", { action: said.next_action });
  } catch {
    tell("refused", { code: "NETWORK_OFFLINE", message: "the service cannot be reached" });
  }
  await swap();
}

if (shop) {
  addEventListener("message", hear);
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLElement} */ (event.target);
    if (form.matches("form.methods")) choose(event);
  });
  document.addEventListener("change", (event) => {
    const chosen = /** @type {HTMLInputElement} */ (event.target);
    if (chosen.name === "method") tell("change", { kind: chosen.dataset.kind });
  });
  new ResizeObserver(() => {
    tell("resize", { height: Math.ceil(document.documentElement.getBoundingClientRect().height) });
  }).observe(document.body);
}

/** Shows the page as the service has it now, without leaving it; focus goes to how it ended. */
async function swap() {
  try {
    const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    const answer = await fetch(location.href, { cache: "no-store", signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [mine, theirs] = [document.querySelector("main"), page.querySelector("main")];
    const script = page.querySelector("script[src]:nth-of-type(2)")?.getAttribute("src");
    if (script && !document.querySelector(`script[src="${script}"]`)) return location.reload();
    if (mine && theirs) mine.replaceWith(theirs);
    document.title = page.title;
    /** @type {HTMLElement | null} */ (document.querySelector("[data-result]"))?.focus();
  } catch {
    // The next look shows it.
  }
}

/** Follows the payment: a stream of events, and behind it questions. */
class PayStatus extends HTMLElement {
  #version = 0;
  #wait = POLL_FIRST_MS;
  #timer = 0;
  /** @type {EventSource | null} */
  #stream = null;
  #looks = new AbortController();

  connectedCallback() {
    this.#version = Number(this.dataset.version);
    const result = this.querySelector("[data-result]");
    const status = result?.getAttribute("data-result");
    if (status) tell("result", { status });
    if (this.dataset.live === undefined) return;
    const { signal } = this.#looks;
    const look = () => this.#look();
    document.addEventListener("visibilitychange", look, { signal });
    addEventListener("pageshow", look, { signal });
    addEventListener("online", look, { signal });
    addEventListener("offline", () => this.#say(word("offline")), { signal });
    addEventListener("pay:look", look, { signal });
    this.#listen();
  }

  disconnectedCallback() {
    this.#looks.abort();
    this.#close();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#stream?.close();
    this.#stream = null;
  }

  /** A hidden page holds no stream: browsers allow but few, and phones cut them off. */
  #look() {
    this.#close();
    if (document.hidden) return;
    this.#ask();
    this.#listen();
  }

  #listen() {
    if (document.hidden || !("EventSource" in window)) return void this.#later();
    const stream = new EventSource(`${this.dataset.url}/events`);
    this.#stream = stream;
    stream.addEventListener("status", (event) => this.#told(JSON.parse(event.data)));
    stream.addEventListener("onchain", (event) => {
      dispatchEvent(new CustomEvent("pay:onchain", { detail: JSON.parse(event.data) }));
      tell("onchain", { progress: JSON.parse(event.data) });
    });
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED) this.#later();
    });
  }

  /** @param {{ status: string, version: number }} told */
  #told(told) {
    this.#wait = POLL_FIRST_MS;
    this.#say("");
    if (told.version === this.#version) return;
    this.#version = told.version;
    tell("status", { status: told.status });
    swap();
  }

  async #ask() {
    const view = await ask(this.dataset.url ?? "");
    if (view?.status) this.#told(view);
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      await this.#ask();
      this.#wait = Math.min(this.#wait * 1.5, POLL_MAX_MS);
      if (this.isConnected && !document.hidden) this.#later();
    }, this.#wait);
  }

  /** @param {string} text */
  #say(text) {
    const place = /** @type {HTMLElement | null} */ (this.querySelector("[data-live-text]"));
    if (!place) return;
    place.dataset.usual ??= place.textContent ?? "";
    place.textContent = text || place.dataset.usual;
  }
}

/** Counts down; at zero it only asks, for the service alone says what is over. */
class PayCountdown extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    const ahead = Date.parse(this.dataset.now ?? "") - Date.now(); // of the buyer's clock
    const until = Date.parse(this.dataset.until ?? "");
    const shown = document.createElement("span");
    shown.setAttribute("aria-hidden", "true");
    const spoken = document.createElement("span");
    spoken.className = "hidden";
    spoken.setAttribute("role", "status");
    this.replaceChildren(shown, spoken);
    const tick = () => {
      const left = until - Date.now() - ahead;
      if (left <= 0) {
        clearInterval(this.#timer);
        shown.textContent = spoken.textContent = word("time_over");
        dispatchEvent(new Event("pay:look"));
        return;
      }
      shown.textContent = word("time_left", { time: clock(left) });
      const minutes = Math.ceil(left / MINUTE_MS);
      if (ANNOUNCED_MINUTES.includes(minutes)) {
        const text = minutes > 1 ? word("minutes_left", { minutes }) : word("minute_left");
        if (spoken.textContent !== text) spoken.textContent = text;
      }
    };
    this.#timer = setInterval(tick, 1_000);
    tick();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }
}

/** @param {number} ms */
function clock(ms) {
  const seconds = Math.floor(ms / 1_000);
  const parts = [Math.floor(seconds / 60) % 60, seconds % 60];
  if (seconds >= 3_600) parts.unshift(Math.floor(seconds / 3_600));
  return parts.map((part, at) => (at ? String(part).padStart(2, "0") : String(part))).join(":");
}

/** Copies a text, and says so. */
class PayCopy extends HTMLElement {
  connectedCallback() {
    const button = this.querySelector("button");
    button?.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.dataset.text ?? "");
      const before = button.textContent;
      button.textContent = word("copied");
      setTimeout(() => {
        button.textContent = before;
      }, 2_000);
    });
  }
}

/** Goes back to the shop once it was told of the payment, or had the time to be. */
class PayReturn extends HTMLElement {
  #stopped = false;

  connectedCallback() {
    this.hidden = false;
    this.querySelector("button")?.addEventListener("click", () => this.#stop());
    this.#wait(Date.now() + RETURN_AFTER_MS);
  }

  disconnectedCallback() {
    this.#stopped = true;
  }

  #stop() {
    this.#stopped = true;
    this.hidden = true;
  }

  /** @param {number} until */
  async #wait(until) {
    while (!this.#stopped && Date.now() < until) {
      const view = await ask(this.dataset.url ?? "");
      if (view?.merchant_told) break;
      await new Promise((done) => setTimeout(done, 1_000));
    }
    if (!this.#stopped) location.assign(this.dataset.to ?? "");
  }
}

class PayPrint extends HTMLElement {
  connectedCallback() {
    this.querySelector("button")?.addEventListener("click", () => print());
  }
}

document.documentElement.classList.add("scripted");
customElements.define("pay-status", PayStatus);
customElements.define("pay-countdown", PayCountdown);
customElements.define("pay-copy", PayCopy);
customElements.define("pay-return", PayReturn);
customElements.define("pay-print", PayPrint);
tell("ready", { status: document.querySelector("[data-result]")?.getAttribute("data-result") });
