// The checkout's card step: shows the provider's own fields and lets the buyer try until it is paid.
// What is typed there never comes here, and the service alone says when a payment is paid.
// @ts-check

import { learn, reach, report, swap, word } from "./checkout.js";

learn({/* texts */});

const POLL_MS = 2_000; // while something is decided
const AWAY = word("card_away");
const TROUBLE = word("card_trouble");
const DECIDING = word("card_deciding");
const CLOSED = word("card_closed");
const UNPAID = new Set(["requires_payment_method", "requires_confirmation", "requires_action"]);
/** The provider's name of a language, where it has another one than the page. */
const LOCALES = new Map([["zh-Hant", "zh-TW"]]);
const CLEAR = new Set(["card_error", "validation_error"]); // errors in words for buyers

const root = /** @type {HTMLElement} */ (document.querySelector("[data-card-step]"));
const { script = "", key = "", clientSecret = "", page = "" } = root.dataset;
const back = root.dataset.return ?? page;
const form = /** @type {HTMLFormElement} */ (root.querySelector("[data-form]"));
const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
const status = /** @type {HTMLElement} */ (root.querySelector("[data-status]"));

let timer = 0;

/** The provider, or its script, does not answer. */
class Away extends Error {}

/** @param {string} text @param {boolean} [bad] */
function say(text, bad = false) {
  status.classList.toggle("problem", bad);
  if (status.textContent !== text) status.textContent = text; // each change is read aloud
}

/**
 * Loads the provider's script, which must come from the provider itself.
 * @param {string} url
 */
function load(url) {
  return new Promise((done, failed) => {
    const element = document.createElement("script");
    element.src = url;
    element.onload = done;
    element.onerror = () => failed(new Away("the provider's script cannot be loaded"));
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
  element.on("loaderror", () => say(AWAY, true));
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
  say(word("card_wait"));
  const confirmParams = { return_url: new URL(back, location.href).href };
  let result;
  try {
    result = await stripe.confirmPayment({ elements, redirect: "if_required", confirmParams });
  } catch {
    result = { error: { type: "api_connection_error" } };
  }
  if (!result.error) {
    location.assign(confirmParams.return_url); // there the provider is asked at once
    return;
  }
  button.disabled = false;
  refused(result.error);
}

/** @param {{ code?: string, type?: string, message?: string }} error */
function refused(error) {
  if (error.code === "payment_intent_unexpected_state") {
    location.assign(back); // it was paid or closed meanwhile
    return;
  }
  say((CLEAR.has(error.type ?? "") && error.message) || TROUBLE, true);
  follow(); // after too many of these the payment ends
}

/** @param {string} text */
function wait(text) {
  form.hidden = true;
  say(text);
  follow();
}

/** Looks again and again whether the service still wants this step, and shows what it wants else. */
function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => look().catch(report), POLL_MS);
}

async function look() {
  if (document.hidden || !root.isConnected) return;
  const answer = await reach(page);
  if (answer?.ok && !answer.text.includes(clientSecret)) await swap(true);
  follow();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer) look().catch(report);
});
begin().catch((error) => (error instanceof Away ? say(AWAY, true) : report(error)));
