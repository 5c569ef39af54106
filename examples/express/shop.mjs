// A shop with one book, in Express: see README.md.
import { randomUUID } from "node:crypto";

import express from "express";
import { PayintentError, WebhookError, webhooks } from "payintent-sdk";

import { isGraded, routes } from "./graded.mjs";
import { findNextPage, findOrder, isReviewed, placeOrder, poll, refresh, required, settle } from "./orders.mjs";

const POLL_EVERY_MS = 60_000;
const UUID = /^[0-9a-f-]{36}$/;
const IN_REVIEW = "Your payment needs a review. Please do not pay again: we will contact you.";
/** @type {[string, string]} */
const WAITING = ["Your order is waiting for your payment.", "Continue to payment"];
/**
 * What the order page says for each status of the payment, and the label of its button.
 * @type {Map<string, [string, string]>}
 */
const TEXTS = new Map([
  ["PENDING", WAITING],
  ["PROCESSING", ["Your payment is being processed.", "Continue to payment"]],
  ["FAILED", ["Your payment has failed. You have not been charged.", "Pay again"]],
  ["EXPIRED", ["Your payment has expired before it was confirmed.", "Pay again"]],
  ["CANCELLED", ["Your payment was cancelled. You have not been charged.", "Pay again"]],
]);
const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two during a rotation
const app = express();
if (isGraded()) app.use("/graded", routes);

// Each page view has its own order.
app.get("/", (_, response) => {
  response.send(`
    <h1>Tides of the Chao Phraya</h1>
    <form method="post" action="/buy/${randomUUID()}"><button>Buy for 1590.00 THB</button></form>
  `);
});

// Redirects the buyer to the order's payment: the first time, and to pay again.
app.post("/buy/:id", async (request, response) => {
  const { id } = request.params;
  if (!UUID.test(id)) return response.sendStatus(404);
  try {
    return response.redirect(303, await findNextPage(placeOrder(id)));
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return response.status(502).send("This cannot be paid now. Please try again.");
  }
});

// Shows the order to the buyer who returns. Ignores the query: anyone can write it.
app.get("/orders/:id", async (request, response) => {
  const order = findOrder(request.params.id);
  if (!order) return response.status(404).send("We know no such order.");
  const [text, label] = await describe(order);
  const button = label && `<form method="post" action="/buy/${order.id}"><button>${label}</button></form>`;
  return response.send(`<h1>Order ${order.id}</h1><p>${text}</p>${button}`);
});

/**
 * Returns what the page says about the order, and the label of its button, if any.
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
    return ["We cannot read your payment now. Please reload this page.", ""];
  }
}

// The event is applied once, even if it arrives late or twice.
app.post("/webhooks", express.raw({ type: "*/*", limit: "64kb" }), async (request, response) => {
  try {
    const event = await webhooks.verify(request.body, request.headers, secrets);
    const { payment } = event.data; // missing in an event of an unknown type
    if (payment) settle(payment);
    response.sendStatus(204);
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    response.sendStatus(401);
  }
});

setInterval(poll, POLL_EVERY_MS);
app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
