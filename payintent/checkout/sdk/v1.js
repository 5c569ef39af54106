// Version 1 of the browser SDK of the Payment Intent Service. The script only defines `PayIntent`, which
// has no effect until it is called. v1.d.ts documents the calls, and loader.js loads this script.
// The script is served minified and must stay below 6.1 kB when compressed.
// @ts-check
(() => {
  "use strict";

  /** @typedef {import("./v1").CheckoutSdk} CheckoutSdk */
  /** @typedef {import("./v1").CheckoutView} CheckoutView */
  /** @typedef {import("./v1").Amount} Amount */
  /** @typedef {CheckoutSdk["onchain"]} Onchain */
  /** @typedef {import("./v1").Request} RequestOptions */

  const current = /** @type {HTMLScriptElement | null} */ (document.currentScript);
  const script = current?.src;
  const CHECKOUT_ID = /^cs_[0-9A-Za-z]{16}$/;
  const SAFE = /^(https:|http:..(localhost|127(\.\d+){3}|\[::1\])[:/])/;
  const ENDED = /^(PAID|FAILED|EXPIRED|CANCELLED|PARTIALLY_REFUNDED|REFUNDED)$/;
  /** @type {Record<string, number>} */
  const DECIMALS = { USD: 2, THB: 2, JPY: 0, TWD: 2, IDR: 2, PHP: 2, USDT: 18, NATIVED: 18 };
  const COUNTRIES =
    "GLTHJPTWIDPHUSGUKHAUGBCAFRMPARVNUYDEESLKMXPTSAUAPEQAAMCLNOITNLSVKWPYBHDOPLCONZINIEEGPAECCHHUBGBESESGBRMYHK".match(/../g);

  // The wallet script, which is in the same folder. The service inserts its hash and integrity value.
  const PART = "v1.onchain.js";
  const INTEGRITY = "";

  const SELECT_MS = 35_000; // includes the service's request to the provider
  const DAY_MS = 86_400_000; // the maximum lifetime of a checkout
  const GRACE_MS = 120_000; // the result may arrive shortly after the deadline

  // All other codes have the type payment_error, unless the HTTP status determines a different type.
  const TYPES = {
    network_error: "NETWORK_TIMEOUT NETWORK_OFFLINE POLLING_TIMEOUT",
    validation_error:
      "HTTP_NOT_ALLOWED MISSING_PARAM INVALID_FORMAT INVALID_AMOUNT INVALID_CURRENCY UNSUPPORTED_CURRENCY UNSUPPORTED_COUNTRY INVALID_REDIRECT_URL",
    authentication_error: "UNAUTHORIZED FORBIDDEN NOT_FOUND CHECKOUT_NOT_FOUND",
    server_error: "INVALID_RESPONSE",
    sdk_error: "SDK_NOT_LOADED WIDGET_LOAD_FAILED WALLET_INIT_FAILED POPUP_BLOCKED AMOUNT_NOT_SET WIDGET_NOT_MOUNTED WIDGET_FAILED",
  };
  const RETRYABLE = /^(NETWORK_|POLLING_|SDK_NOT_|WIDGET_LOAD|WALLET_)/;

  class CheckoutError extends Error {
    /** @param {string} code @param {string} [message] @param {any} [more] */
    constructor(code, message, { requestId = null, checkoutId = null, ...more } = {}) {
      super(message ?? code.toLowerCase().replace(/_/g, " "));
      const { status, retryAfterMs } = more;
      const entry = Object.entries(TYPES).find(([, codes]) => codes.split(" ").includes(code));
      const fallback = status === 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "payment_error";
      this.name = "CheckoutError";
      this.type = entry ? entry[0] : fallback;
      this.code = code;
      this.retryable = entry ? RETRYABLE.test(code) : retryAfterMs >= 0 || (status >= 429 && status !== 501);
      this.requestId = requestId;
      this.checkoutId = checkoutId;
      Object.assign(this, more);
    }

    toJSON() {
      const { type, code, message, retryable, requestId, checkoutId } = this;
      return { type, code, message, retryable, requestId, checkoutId };
    }
  }

  /** @type {(code: string, message?: string, more?: object) => never} */
  const fail = (code, message, more) => {
    throw new CheckoutError(code, message, more);
  };
  /** @type {<T>(value: T, name: string) => NonNullable<T>} */
  const need = (value, name) => value ?? fail("MISSING_PARAM", `${name} is missing`);
  /** @type {(ms: number) => Promise<void>} */
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  /** Throws if the signal is aborted. Signals in Safari 15 have neither throwIfAborted nor a reason. @param {any} [signal] */
  const halt = (signal) => {
    // eslint-disable-next-line no-restricted-syntax -- this line works without it
    if (signal?.aborted) throw signal.why ?? signal.reason ?? new DOMException("", "AbortError");
  };

  /** @param {string | URL} text @param {string} code */
  function parse(text, code) {
    try {
      return new URL(text, location.href);
    } catch {
      return fail(code);
    }
  }

  /** @param {string} currency */
  function checkCurrency(currency) {
    if (!/^[A-Z]{3,10}$/.test(currency)) fail("INVALID_CURRENCY");
    if (!(currency in DECIMALS)) fail("UNSUPPORTED_CURRENCY");
  }

  /** @param {string} [country] */
  function checkCountry(country) {
    if (country != null && !COUNTRIES?.includes(country)) fail("UNSUPPORTED_COUNTRY");
  }

  /** @param {Amount} amount */
  function checkAmount({ amount, currency }) {
    checkCurrency(need(currency, "currency"));
    const isPlain = typeof need(amount, "amount") === "string" && /^(0|[1-9]\d*)(\.\d+)?$/.test(amount);
    const [, fraction = ""] = isPlain ? amount.split(".") : [];
    if (!isPlain || !/[1-9]/.test(amount) || fraction.length > (DECIMALS[currency] ?? 0)) fail("INVALID_AMOUNT");
  }

  /** Returns the error that a response describes. @param {any} body @param {any} more @param {string | null} [retryAfter] */
  function toError(body, { status, ...more }, retryAfter) {
    more.status = status;
    const { fds } = body ?? {};
    if (fds?.outcome === "DENY") return new CheckoutError("PAYMENT_DECLINED", fds.message, { ...more, fds });
    if (retryAfter) more.retryAfterMs = Math.max(0, +retryAfter * 1_000 || Date.parse(retryAfter) - Date.now() || 0);
    let code = status === 429 ? "RATE_LIMITED" : status >= 500 ? "SERVICE_UNAVAILABLE" : "INVALID_RESPONSE";
    let message;
    if (!(status < 400) && body?.code) ({ code, message } = body);
    if (code === "BAD_REQUEST") code = /^return_url/.test(message) ? "INVALID_REDIRECT_URL" : "INVALID_FORMAT";
    if (code === "SESSION_GONE") code = "CHECKOUT_EXPIRED";
    return new CheckoutError(code, message, more);
  }

  /** Returns the result of a checkout, or throws an error if it was not paid. @param {CheckoutView} view */
  function toResult({ status, checkout_id: checkoutId, failure_reason: failureReason, ...view }) {
    /** @type {Record<string, string>} */
    const codes = {
      EXPIRED: "CHECKOUT_EXPIRED",
      CANCELLED: "PAYMENT_CANCELLED",
      FAILED: "PAYMENT_FAILED",
      DECLINED: "PAYMENT_DECLINED",
      TX_REVERTED: "ONCHAIN_TX_FAILED",
    };
    const code = (status === "FAILED" && failureReason && codes[failureReason]) || codes[status];
    if (code) fail(code, undefined, { checkoutId, failureReason });
    return { status, checkoutId, paymentId: view.payment_id, receiptId: view.receipt_id, returnUrl: view.return_url };
  }

  /** Creates a list of event listeners. A listener that throws does not affect the others. */
  function emitter() {
    /** @type {Record<string, Set<Function>>} */
    const listeners = {};
    return {
      /** @param {string} event @param {Function} listener */
      on(event, listener) {
        (listeners[event] ??= new Set()).add(listener);
        return () => void listeners[event]?.delete(listener);
      },
      /** @param {string} event @param {any} detail */
      emit(event, detail) {
        listeners[event]?.forEach((listener) => queueMicrotask(() => listener(detail)));
      },
    };
  }

  /**
   * Wraps calls, so that their errors are also reported.
   * @template {object} T
   * @param {T} calls
   * @param {(error: unknown, id: any) => void} report
   * @returns {T}
   */
  function wrap(calls, report) {
    const entries = Object.entries(calls).map(([name, call]) => [
      name,
      /** @param {any[]} args */
      async (...args) => {
        try {
          return await call(...args);
        } catch (error) {
          report(error, args[0]?.checkoutId ?? args[0]);
          throw error;
        }
      },
    ]);
    return Object.fromEntries(entries);
  }

  /** @type {Promise<import("./v1").WalletPart> | undefined} */
  let scriptPromise;

  /** Loads the wallet script once. If loading fails, the next call tries again. */
  const loadWallets = () =>
    (scriptPromise ??= new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.onload = () => resolve(/** @type {any} */ (PayIntent).wallets);
      element.onerror = () => reject(new CheckoutError("SDK_NOT_LOADED", `${element.src} cannot be loaded`, (scriptPromise = undefined)));
      const src = new URL(PART, need(script, "apiBase")).href;
      const { nonce } = current ?? {};
      document.head.append(Object.assign(element, { src, integrity: INTEGRITY, crossOrigin: "", nonce }));
    }));

  /** Opens an empty window. With `noopener`, the SDK could not close it later. @param {string} size */
  const openBlank = (size) => window.open("about:blank", "_blank", `popup,${size}`) ?? fail("POPUP_BLOCKED");

  /** @param {import("./v1").SdkOptions} [options] @returns {CheckoutSdk} */
  function PayIntent({ apiBase, checkoutBase, locale, chains, timeoutMs = 10_000, maxRetries = 2 } = {}) {
    /** @param {string | undefined} value @param {string} path */
    const toBase = (value, path) => {
      const url = parse(value ?? new URL(path, need(script, "apiBase")), "INVALID_FORMAT").href;
      if (!window.isSecureContext || !SAFE.test(url)) fail("HTTP_NOT_ALLOWED");
      return url.replace(/\/$/, "");
    };
    const api = toBase(apiBase, "/v1");
    const pages = toBase(checkoutBase, "/c");
    const pagesOrigin = new URL(pages).origin;
    const { on, emit } = emitter();
    /** @type {unknown} */
    let lastError;
    /** Reports an error, but only once. @param {unknown} error @param {any} id @param {typeof emit} [more] */
    const report = (error, id, more) => {
      if (error === lastError || !(error instanceof CheckoutError)) return;
      lastError = error;
      if (CHECKOUT_ID.test(id)) error.checkoutId ??= id;
      emit("error", error);
      more?.("error", error);
    };

    // The API

    /** Sends a request once. A response without `field` is an error. @param {string} path @param {string} field @param {RequestOptions} [options] */
    async function request(path, field, { method, body, signal, patience = timeoutMs } = {}) {
      halt(signal);
      const checkoutId = /cs_\w+/.exec(path)?.[0];
      const controller = new AbortController();
      const json = body && JSON.stringify(body);
      const stop = () => controller.abort();
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        stop();
      }, patience);
      signal?.addEventListener("abort", stop);
      let response, text, data;
      try {
        response = await fetch(api + path, {
          method,
          cache: "no-store",
          headers: body && { "Content-Type": "application/json" },
          body: json,
          signal: controller.signal,
        });
        text = await response.text();
      } catch {
        halt(signal);
        return fail(isLate ? "NETWORK_TIMEOUT" : "NETWORK_OFFLINE", undefined, { checkoutId });
      } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
      }
      try {
        data = JSON.parse(text);
      } catch {
        // A response that is not JSON lacks the required field.
      }
      const { ok, status, headers } = response;
      if (ok && data?.[field] !== undefined && data.fds?.outcome !== "DENY") return data;
      throw toError(data, { checkoutId, status, requestId: headers.get("X-Request-Id") }, headers.get("Retry-After"));
    }

    /** Sends a read-only request, and retries it if necessary. @param {string} path @param {string} field @param {RequestOptions} [options] */
    async function read(path, field, options) {
      for (let tries = 0; ; tries += 1) {
        try {
          return await request(path, field, options);
        } catch (/** @type {any} */ error) {
          const wait = error.retryAfterMs || 300 * 2 ** tries;
          if (!error.retryable || tries >= maxRetries || wait > timeoutMs) throw error;
          await sleep(wait);
        }
      }
    }

    /** @param {string} checkoutId */
    const pathOf = (checkoutId) =>
      CHECKOUT_ID.test(need(checkoutId, "checkoutId")) ? `/checkout/${checkoutId}` : fail("INVALID_FORMAT");

    /** @type {CheckoutSdk["retrieve"]} */
    const retrieve = async (checkoutId, options) => read(pathOf(checkoutId), "status", options);

    /** @type {CheckoutSdk["listQuotes"]} */
    async function listQuotes(checkoutId, { currency, country, signal } = {}) {
      const path = pathOf(checkoutId);
      if (currency != null) checkCurrency(currency);
      checkCountry(country);
      const query = new URLSearchParams(JSON.parse(JSON.stringify({ currency: currency ?? undefined, country: country ?? undefined })));
      return read(`${path}/quotes?${query}`, "quotes", { signal });
    }

    /** @type {CheckoutSdk["selectQuote"]} */
    async function selectQuote(checkoutId, selection) {
      const path = pathOf(checkoutId);
      need(selection?.payment_method_id, "payment_method_id");
      checkCountry(selection.country);
      const patience = Math.max(timeoutMs, SELECT_MS);
      return request(`${path}/quotes`, "next_action", { method: "POST", body: { locale, ...selection }, patience });
    }

    /** @type {CheckoutSdk["cancel"]} */
    async function cancel(checkoutId) {
      await request(`${pathOf(checkoutId)}/cancel`, "status", { method: "POST" });
      return { checkoutId, status: "CANCELLED" };
    }

    /** Waits for the result through an event stream, and also polls in case events do not arrive. @type {CheckoutSdk["waitForResult"]} */
    async function waitForResult(checkoutId, { timeoutMs: patience, signal } = {}) {
      const path = pathOf(checkoutId);
      let deadline = Date.now() + (patience ?? DAY_MS);
      let delay = 1_000;
      let wake = () => {};
      const onChange = () => wake();
      /** @type {CheckoutView | undefined} */
      let view;
      const stream = new EventSource(`${api}${path}/events`);
      stream.addEventListener("status", ({ data }) => JSON.parse(data).version !== view?.version && wake());
      stream.addEventListener("onchain", ({ data }) => emit("onchain", { checkoutId, ...JSON.parse(data) }));
      // Phones close the connections of hidden pages.
      addEventListener("visibilitychange", onChange);
      addEventListener("online", onChange);
      signal?.addEventListener("abort", onChange);
      try {
        for (;;) {
          const change = new Promise((resolve) => (wake = () => resolve(0)));
          try {
            /** @type {CheckoutView} */
            const next = await request(path, "status", { signal });
            const { status, version, expires_at = "", server_time } = next;
            if (patience == null && !view) deadline = Date.now() + (Date.parse(expires_at) - Date.parse(server_time) || 0) + GRACE_MS;
            if (view && view.version !== version) emit("status", { checkoutId, status });
            view = next;
            if (ENDED.test(status)) return toResult(next);
          } catch (/** @type {any} */ error) {
            if (!error.retryable) throw error;
            delay = Math.max(delay, error.retryAfterMs ?? 0);
          }
          const remaining = deadline - Date.now();
          if (remaining <= 0) fail("POLLING_TIMEOUT", undefined, { checkoutId });
          await Promise.race([change, sleep(Math.min(delay, remaining))]);
          delay = Math.min(delay * 1.5, stream.readyState === 1 ? 15_000 : 5_000);
        }
      } finally {
        stream.close();
        removeEventListener("visibilitychange", onChange);
        removeEventListener("online", onChange);
        signal?.removeEventListener("abort", onChange);
      }
    }

    // Ways to open the checkout

    /** Parses a URL, which must be the URL of a checkout at this service. @param {string | undefined} checkoutUrl */
    function parseCheckout(checkoutUrl) {
      const code = "INVALID_REDIRECT_URL";
      const url = parse(need(checkoutUrl, "checkoutUrl"), code);
      const id = url.pathname.slice(-19);
      if (url.origin + url.pathname !== `${pages}/${id}` || !CHECKOUT_ID.test(id)) fail(code);
      if (locale && !url.searchParams.has("lang")) url.searchParams.set("lang", locale);
      return { url, id };
    }

    /**
     * Opens a URL in this frame or the top page and never resolves, or opens it in a window and waits for the result.
     * @param {URL} url @param {string} checkoutId @param {{ target?: string, signal?: AbortSignal }} options
     * @param {Record<string, string>} [fields] form fields to post @returns {Promise<any>}
     */
    async function go(url, checkoutId, { target = "_self", signal }, fields) {
      const popup = target === "popup" && openBlank("");
      if (fields) {
        const form = document.createElement("form");
        Object.assign(form, { method: "post", action: url, target: popup ? "_self" : target });
        for (const [name, value] of Object.entries(fields)) {
          form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
        }
        (popup || window).document.body.append(form);
        HTMLFormElement.prototype.submit.call(form); // a field may be named "submit"
      } else {
        (popup || (target === "_top" && window.top) || window).location.assign(url);
      }
      return popup ? waitForResult(checkoutId, { signal }) : new Promise(() => {});
    }

    /** @type {CheckoutSdk["redirectToCheckout"]} */
    const redirectToCheckout = ({ checkoutUrl, target }) =>
      /** @type {any} */ (go(parseCheckout(checkoutUrl).url, "", { target }));

    /** @type {CheckoutSdk["openPopup"]} */
    async function openPopup({ checkoutUrl, createCheckout, width = 480, height = 720, signal }) {
      need(checkoutUrl ?? createCheckout, "checkoutUrl");
      let checkout = checkoutUrl ? parseCheckout(checkoutUrl) : null;
      // Open the window before the first await. Browsers block windows that are opened later.
      const popup = openBlank(`width=${width},height=${height}`);
      try {
        checkout ??= parseCheckout((await createCheckout?.())?.checkoutUrl);
        popup.location.replace(checkout.url);
        const result = await waitForResult(checkout.id, { signal });
        popup.close();
        return result;
      } catch (/** @type {any} */ error) {
        if (!/network|server/.test(error?.type)) popup.close(); // otherwise, the buyer may be paying in it
        throw error;
      }
    }

    /** @type {CheckoutSdk["handleNextAction"]} */
    async function handleNextAction(checkoutId, action, options = {}) {
      pathOf(checkoutId);
      const { type, redirect, onchain_session: chain, fallback_url: page } = need(action, "action");
      const { provider, signal } = options;
      if (redirect) {
        const code = "INVALID_REDIRECT_URL";
        const url = parse(redirect.url, code);
        if (!SAFE.test(url.href)) fail(code);
        return go(url, checkoutId, options, redirect.method === "POST" ? (redirect.fields ?? {}) : undefined);
      }
      if (chain && provider) {
        const session = await onchain.session(chain.session_id);
        await onchain.pay({ checkoutId, session, provider, signal });
      } else if (page && !/^(wait|none)$/.test(type)) {
        return go(parseCheckout(page).url, checkoutId, options);
      }
      return waitForResult(checkoutId, { signal });
    }

    // The widget: the hosted page in a frame

    /** @param {import("./v1").WidgetOptions} options @returns {import("./v1").Widget} */
    function widget({ checkoutUrl, createCheckout, loadTimeoutMs = 15_000, title = "Checkout", ...settings }) {
      need(checkoutUrl ?? createCheckout, "checkoutUrl");
      let checkout = checkoutUrl ? parseCheckout(checkoutUrl) : null;
      /** @type {Amount | null} */
      let amount = null;
      /** @type {Element | null} */
      let container = null;
      /** @type {HTMLIFrameElement | null} */
      let frame = null;
      /** @type {Promise<void> | null} */
      let creation = null;
      let controller = new AbortController(); // aborts everything that waits for the frame
      let mounted = false;
      let nonce = "";
      let ready = () => {};
      const events = emitter();
      /** @param {unknown} error */
      const emitError = (error) => report(error, checkout?.id, events.emit);

      /** @param {unknown} error */
      function abort(error) {
        const previous = controller;
        controller = new AbortController();
        Object.assign(previous.signal, { why: error });
        previous.abort();
      }

      /** @param {MessageEvent} event */
      function receive({ origin, source, data }) {
        if (!frame || !checkout || source !== frame.contentWindow || origin !== pagesOrigin) return;
        if (data?.source !== "payintent" || data.version !== 1 || data.nonce !== nonce) return;
        const { type, height, action, requestId, status, retryAfter } = data;
        if (type === "ready") ready();
        if (type === "resize") frame.style.height = `${height}px`;
        if (type === "refused") {
          const error = toError(data, { checkoutId: checkout.id, requestId, status }, retryAfter);
          emitError(error);
          abort(error);
        }
        // Wallets are not available in frames, and many gateways reject frames, so both open in the top page.
        if (type === "next_action" && /^(redirect|onchain_session)$/.test(action?.type)) {
          handleNextAction(checkout.id, action, { target: "_top" }).catch(emitError);
        }
        events.emit(type, data);
      }

      /** @param {object} message */
      const send = (message) =>
        frame?.contentWindow?.postMessage({ source: "payintent", version: 1, nonce, ...message }, pagesOrigin);

      function removeFrame() {
        removeEventListener("message", receive);
        frame?.remove();
        frame = null;
        abort(new CheckoutError("WIDGET_NOT_MOUNTED"));
      }

      async function load() {
        removeFrame();
        nonce = crypto.getRandomValues(new Uint32Array(4)).join();
        const { signal } = controller;
        const url = new URL(need(checkout, "checkoutUrl").url);
        const { country, locale: lang } = settings;
        for (const [name, value] of Object.entries({ embed_origin: location.origin, nonce, lang, country })) {
          if (value) url.searchParams.set(name, value);
        }
        const element = document.createElement("iframe");
        element.style.cssText = "width:100%;border:0;min-height:20rem";
        frame = Object.assign(element, { title, allow: "payment; clipboard-write", src: url });
        addEventListener("message", receive);
        container?.append(element);
        try {
          await new Promise((resolve, reject) => {
            ready = () => resolve((mounted = true));
            signal.addEventListener("abort", () => reject(/** @type {any} */ (signal).why));
            // A blocked frame does not report an error.
            setTimeout(() => reject(new CheckoutError("WIDGET_LOAD_FAILED")), loadTimeoutMs);
          });
        } catch (error) {
          if (frame === element) removeFrame();
          throw error;
        }
      }

      async function createAndLoad() {
        while (!checkout) {
          const order = need(amount, "amount");
          const response = await createCheckout?.({ ...order, country: settings.country });
          if (order === amount) checkout = parseCheckout(response?.checkoutUrl);
        }
        checkMounted();
        await load();
      }

      function checkMounted() {
        if (!mounted || !(frame ?? container)?.isConnected) fail("WIDGET_NOT_MOUNTED");
      }

      /** @param {Amount} amount */
      async function setAmount({ amount: value, currency }) {
        need(createCheckout, "createCheckout");
        checkAmount({ amount: value, currency });
        if (amount?.amount === value && amount.currency === currency) return;
        amount = { amount: value, currency };
        if (checkout) removeFrame();
        checkout = null; // it was created for a different amount
      }

      const calls = {
        setAmount,
        /** @param {string | Element} element */
        async mount(element) {
          mounted = false;
          removeFrame();
          container = need(typeof element === "string" ? document.querySelector(element) : element, "element");
          if (checkout) return load();
          mounted = true;
          events.emit("ready", {});
        },
        /** @param {{ locale?: string, country?: string, amount?: Amount }} changes */
        async update({ amount: newAmount, ...changes }) {
          checkMounted();
          checkCountry(changes.country);
          if (newAmount) await setAmount(newAmount);
          Object.assign(settings, changes);
          send({ type: "update", ...changes });
        },
        async submit() {
          checkMounted();
          if (frame) send({ type: "submit" });
          else if (!amount) fail("AMOUNT_NOT_SET");
          else await (creation ??= createAndLoad().finally(() => (creation = null)));
          return waitForResult(need(checkout, "checkoutUrl").id, { signal: controller.signal });
        },
      };
      return {
        ...wrap(calls, emitError),
        on: events.on,
        unmount() {
          mounted = false;
          removeFrame();
        },
      };
    }

    // Wallets, with a script that is loaded when a wallet call is first used

    /** @type {ReturnType<import("./v1").WalletPart> | undefined} */
    let wallets;
    const onchain = /** @type {Onchain} */ ({});
    for (const name of /** @type {const} */ (["discover", "connect", "session", "ensureChain", "pay"])) {
      /** @type {any} */ (onchain)[name] = /** @param {any[]} args */ async (...args) => {
        const createWallets = await loadWallets();
        wallets ??= createWallets({ fail, need, sleep, request, read, halt, chains });
        return /** @type {any} */ (wallets[name])(...args);
      };
    }

    const calls = { redirectToCheckout, openPopup, retrieve, listQuotes, selectQuote, handleNextAction, waitForResult, cancel };
    return { ...wrap(calls, report), onchain: wrap(onchain, report), widget, on };
  }

  Object.defineProperty(window, "PayIntent", {
    value: Object.assign(PayIntent, { version: "1.0.0", CheckoutError }),
    configurable: true,
  });
})();
