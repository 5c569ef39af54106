// An Express shop that sells one book; see README.md.
import { randomUUID } from "node:crypto";

import express from "express";
import { PayintentError, WebhookError, webhooks } from "payintent-sdk";

import { isGraded, routes } from "./graded.mjs";
import { findNextPage, findOrder, isReviewed, placeOrder, poll, refresh, required, settle } from "./orders.mjs";

const POLL_EVERY_MS = 60_000;
const UUID = /^[0-9a-f-]{36}$/;
const IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you.";
/** @type {[string, string]} */
const WAITING = ["Your order is waiting for your payment.", "Continue to payment"];
/**
 * The order page's text and button label for each status of the payment.
 * @type {Map<string, [string, string]>}
 */
const TEXTS = new Map([
  ["PENDING", WAITING],
  ["PROCESSING", ["Your payment is being processed.", "Continue to payment"]],
  ["FAILED", ["Your payment has failed. You have not been charged.", "Pay again"]],
  ["EXPIRED", ["Your payment expired before it was confirmed.", "Pay again"]],
  ["CANCELLED", ["Your payment was cancelled. You have not been charged.", "Pay again"]],
]);
const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two during a rotation
const app = express();
if (isGraded()) app.use("/graded", routes);

// Each page view uses a new order ID.
app.get("/", (_, response) => {
  response.send(`
    <h1>Tides of the Chao Phraya</h1>
    <form method="post" action="/buy/${randomUUID()}"><button>Buy for 1590.00 THB</button></form>
  `);
});

// Redirects the buyer to the order's payment. Later attempts also use this route.
app.post("/buy/:id", async (request, response) => {
  const { id } = request.params;
  if (!UUID.test(id)) return response.sendStatus(404);
  try {
    return response.redirect(303, await findNextPage(placeOrder(id)));
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return response.status(502).send("The payment could not be started. Please try again.");
  }
});

// Shows the order to the returning buyer. Ignores the query string, which anyone can forge.
app.get("/orders/:id", async (request, response) => {
  const order = findOrder(request.params.id);
  if (!order) return response.status(404).send("This order does not exist.");
  const [text, label] = await describe(order);
  const button = label && `<form method="post" action="/buy/${order.id}"><button>${label}</button></form>`;
  return response.send(`<h1>Order ${order.id}</h1><p>${text}</p>${button}`);
});

/**
 * Returns the page's text for the order, and the label of its button ("" for no button).
 * @param {import("./orders.mjs").Order} order
 * @returns {Promise<[string, string]>}
 */
async function describe(order) {
  try {
    const payment = order.status === "paid" ? undefined : await refresh(order);
    if (order.status === "paid") return ["Your order is paid.", ""];
    if (!payment) return WAITING;
    if (isReviewed(payment)) return [IN_REVIEW, ""];
    return TEXTS.get(payment.status) ?? ["We are confirming your payment.", ""];
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return ["We cannot check your payment at the moment. Please reload this page.", ""];
  }
}

// The event is applied once, even if it arrives late or twice.
app.post("/webhooks", express.raw({ type: "*/*", limit: "64kb" }), async (request, response) => {
  try {
    const event = await webhooks.verify(request.body, request.headers, secrets);
    const { payment } = event.data; // can be missing from an event of an unknown type
    if (payment) settle(payment);
    response.sendStatus(204);
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    response.sendStatus(401);
  }
});

setInterval(poll, POLL_EVERY_MS);
app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
