// Loads the browser SDK: `const PayIntent = await loadCheckout({ src: "https://…/sdk/v1.js" })`.
// Importing this module has no effect, so it can also be imported on a server. v1.d.ts documents `loadCheckout`.
// @ts-check

/** @typedef {import("./v1").CheckoutSdkFactory} Factory */
/** @typedef {import("./v1").LoadOptions} LoadOptions */

const TIMEOUT_MS = 10_000;
const PATH = /\/sdk\/v1(\.[0-9a-f]+)?\.js$/;
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;
const VALIDATION = new Set(["INVALID_SCRIPT_URL", "HTTP_NOT_ALLOWED", "MISSING_PARAM"]);

/** @type {Map<string, Promise<Factory>>} */
const loading = new Map();

/** The same error as in `v1.js`, for errors that occur before `v1.js` has loaded. */
export class CheckoutError extends Error {
  /** @param {string} code @param {string} message */
  constructor(code, message) {
    super(message);
    this.name = "CheckoutError";
    this.type = VALIDATION.has(code) ? "validation_error" : "sdk_error";
    this.code = code;
    this.retryable = code === "SDK_NOT_LOADED";
    this.requestId = /** @type {string | null} */ (null);
    this.checkoutId = /** @type {string | null} */ (null);
  }

  toJSON() {
    const { type, code, message, retryable, requestId, checkoutId } = this;
    return { type, code, message, retryable, requestId, checkoutId };
  }
}

/**
 * Loads the script once for each URL. If loading fails, the next call tries again.
 * @param {LoadOptions} options
 * @returns {Promise<Factory>}
 */
export async function loadCheckout(options) {
  if (typeof window === "undefined" || typeof document === "undefined") {
    throw new CheckoutError("SSR_UNSUPPORTED", "the checkout can be loaded only in a browser");
  }
  if (!options?.src) throw new CheckoutError("MISSING_PARAM", "src is missing");
  const { href } = parseSource(options.src);
  let promise = loading.get(href);
  if (!promise) {
    promise = load(href, options);
    loading.set(href, promise);
    promise.catch(() => loading.delete(href));
  }
  return promise;
}

/** @param {string} src */
function parseSource(src) {
  let url;
  try {
    url = new URL(src);
  } catch {
    throw new CheckoutError("INVALID_SCRIPT_URL", "src must be an absolute URL");
  }
  const { protocol, hostname, username, password, pathname } = url;
  if (!/^https?:$/.test(protocol) || username || password || !PATH.test(pathname)) {
    throw new CheckoutError("INVALID_SCRIPT_URL", "src must be the URL of …/sdk/v1.js");
  }
  if (!window.isSecureContext) {
    throw new CheckoutError("HTTP_NOT_ALLOWED", "this page is not a secure context");
  }
  if (protocol === "http:" && !LOOPBACK.test(hostname)) {
    throw new CheckoutError("HTTP_NOT_ALLOWED", "src must use https");
  }
  return url;
}

/**
 * @param {string} src
 * @param {LoadOptions} options
 * @returns {Promise<Factory>}
 */
function load(src, { timeoutMs = TIMEOUT_MS, integrity, nonce }) {
  const script = document.createElement("script");
  return new Promise((resolve, reject) => {
    /** @param {string} reason */
    const fail = (reason) => {
      script.remove();
      reject(new CheckoutError("SDK_NOT_LOADED", `${src} ${reason}`));
    };
    const timer = setTimeout(() => fail("did not load in time"), timeoutMs);
    script.onload = () => {
      clearTimeout(timer);
      if (window.PayIntent) resolve(window.PayIntent);
      else fail("is not the SDK");
    };
    script.onerror = () => {
      clearTimeout(timer);
      fail("cannot be loaded");
    };
    script.crossOrigin = "anonymous";
    if (integrity) script.integrity = integrity;
    if (nonce) script.nonce = nonce;
    script.src = src;
    document.head.append(script);
  });
}
