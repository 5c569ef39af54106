// The checkout's card step: shows the provider's card fields, and lets the buyer try again until the payment
// is paid. This page never receives the card data, and only the service decides whether a payment is paid.
// @ts-check

import { addTexts, call, report, showPage, t } from "./checkout.js";

addTexts({/* texts */});

const POLL_MS = 2_000; // while the result is pending
const AWAY = t("card_away");
const TROUBLE = t("card_trouble");
const DECIDING = t("card_deciding");
const CLOSED = t("card_closed");
const UNPAID = new Set(["requires_payment_method", "requires_confirmation", "requires_action"]);
/** The languages for which the provider uses a different tag than the page. */
const LOCALES = new Map([["zh-Hant", "zh-TW"]]);
const CLEAR = new Set(["card_error", "validation_error"]); // errors whose messages are suitable for buyers

const root = /** @type {HTMLElement} */ (document.querySelector("[data-card-step]"));
const { script = "", key = "", clientSecret = "", page = "" } = root.dataset;
const returnUrl = root.dataset.return ?? page;
const form = /** @type {HTMLFormElement} */ (root.querySelector("[data-form]"));
const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
const status = /** @type {HTMLElement} */ (root.querySelector("[data-status]"));

let timer = 0;

/** The provider or its script is unavailable. */
class Away extends Error {}

/** @param {string} text @param {boolean} [isError] */
function write(text, isError = false) {
  status.classList.toggle("problem", isError);
  if (status.textContent !== text) status.textContent = text; // screen readers announce each change
}

/**
 * Loads the provider's script, which the provider itself must serve.
 * @param {string} url
 */
function load(url) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = url;
    element.onload = resolve;
    element.onerror = () => reject(new Away("the provider's script cannot be loaded"));
    document.head.append(element);
  });
}

async function begin() {
  await load(script);
  const stripe = /** @type {any} */ (window).Stripe(key);
  const { paymentIntent, error } = await stripe.retrievePaymentIntent(clientSecret);
  if (error) throw new Away(error.type);
  if (UNPAID.has(paymentIntent.status)) offer(stripe);
  else wait(paymentIntent.status === "canceled" ? CLOSED : DECIDING);
}

/** @param {any} stripe */
function offer(stripe) {
  const { lang } = document.documentElement;
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "night" : "stripe";
  const elements = stripe.elements({ clientSecret, locale: LOCALES.get(lang) ?? lang, appearance: { theme } });
  const element = elements.create("payment");
  element.on("ready", () => {
    button.disabled = false;
  });
  element.on("loaderror", () => write(AWAY, true));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    pay(stripe, elements);
  });
  form.hidden = false;
  element.mount(root.querySelector("[data-element]"));
}

/** @param {any} stripe @param {any} elements */
async function pay(stripe, elements) {
  if (button.disabled) return;
  button.disabled = true;
  write(t("card_wait"));
  const confirmParams = { return_url: new URL(returnUrl, location.href).href };
  let result;
  try {
    result = await stripe.confirmPayment({ elements, redirect: "if_required", confirmParams });
  } catch {
    result = { error: { type: "api_connection_error" } };
  }
  if (!result.error) {
    location.assign(confirmParams.return_url); // the return page queries the provider immediately
    return;
  }
  button.disabled = false;
  showError(result.error);
}

/** @param {{ code?: string, type?: string, message?: string }} error */
function showError(error) {
  if (error.code === "payment_intent_unexpected_state") {
    location.assign(returnUrl); // it has been paid or closed in the meantime
    return;
  }
  write((CLEAR.has(error.type ?? "") && error.message) || TROUBLE, true);
  follow(); // the payment ends after too many failures
}

/** @param {string} text */
function wait(text) {
  form.hidden = true;
  write(text);
  follow();
}

/** Polls until the service no longer expects this step, and then shows the current page. */
function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => checkStep().catch(report), POLL_MS);
}

async function checkStep() {
  if (document.hidden || !root.isConnected) return;
  const response = await call(page);
  if (response?.ok && !response.text.includes(clientSecret)) await showPage(true);
  follow();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer) checkStep().catch(report);
});
begin().catch((error) => (error instanceof Away ? write(AWAY, true) : report(error)));
