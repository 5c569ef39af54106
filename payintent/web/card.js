// The checkout's card step: shows the provider's own fields and lets the buyer try until it is paid.
// What is typed there never comes here, and the service alone says when a payment is paid.

const POLL_MS = 2_000; // while something is decided
const FETCH_TIMEOUT_MS = 15_000;
const AWAY = "The card fields cannot be loaded just now. Please load this page again, or choose another way to pay.";
const TROUBLE = "This did not work. Please try again, or choose another way to pay.";
const DECIDING = "Your payment is being confirmed. The result appears here.";
const CLOSED = "This card payment was closed. Please choose another way to pay.";
const UNPAID = new Set(["requires_payment_method", "requires_confirmation", "requires_action"]);
const CLEAR = new Set(["card_error", "validation_error"]); // errors in words for buyers

const root = document.querySelector("[data-card-step]");
const { script, key, clientSecret, page } = root.dataset;
const form = root.querySelector("[data-form]");
const button = form.querySelector("button");
const status = root.querySelector("[data-status]");

let timer = 0;

function say(text, bad = false) {
  status.classList.toggle("problem", bad);
  if (status.textContent !== text) status.textContent = text; // each change is read aloud
}

/** Loads the provider's script, which must come from the provider itself. */
function load(url) {
  return new Promise((done, failed) => {
    const element = document.createElement("script");
    element.src = url;
    element.onload = done;
    element.onerror = () => failed(new Error("the provider's script cannot be loaded"));
    document.head.append(element);
  });
}

async function begin() {
  await load(script);
  const stripe = window.Stripe(key);
  const { paymentIntent, error } = await stripe.retrievePaymentIntent(clientSecret);
  if (error) throw new Error(error.type);
  if (UNPAID.has(paymentIntent.status)) offer(stripe);
  else wait(paymentIntent.status === "canceled" ? CLOSED : DECIDING);
}

function offer(stripe) {
  const elements = stripe.elements({ clientSecret });
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

async function pay(stripe, elements) {
  if (button.disabled) return;
  button.disabled = true;
  say("Please wait.");
  const confirmParams = { return_url: new URL(`${page}/return`, location.href).href };
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

function refused(error) {
  if (error.code === "payment_intent_unexpected_state") {
    location.assign(`${page}/return`); // it was paid or closed meanwhile
    return;
  }
  say((CLEAR.has(error.type) && error.message) || TROUBLE, true);
  follow(); // after too many of these the payment ends
}

function wait(text) {
  form.hidden = true;
  say(text);
  follow();
}

/** Looks again and again whether the service still wants this step, and shows what it wants else. */
function follow() {
  clearTimeout(timer);
  timer = setTimeout(look, POLL_MS);
}

async function look() {
  if (document.hidden) return;
  try {
    const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    const answer = await fetch(page, { cache: "no-store", signal });
    if (answer.ok && !(await answer.text()).includes(clientSecret)) {
      location.replace(page);
      return;
    }
  } catch {
    // It is looked again.
  }
  follow();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer) look();
});
begin().catch(() => say(AWAY, true));
