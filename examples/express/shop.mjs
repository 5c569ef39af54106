// A shop with one book, in Express: see README.md.
import { createHash, randomUUID } from "node:crypto";

import express from "express";
import { Client, PayintentError, WebhookError, webhooks } from "payintent-sdk";

/** @param {string} name */
function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}

const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two during a rotation
const client = new Client({ apiKey: required("PAYINTENT_API_KEY"), baseUrl: required("PAYINTENT_URL") });
/**
 * A real shop stores its orders in a database.
 * @typedef {{ id: string, attempt: number, paymentId?: string, amount: string, currency: string, status: string }} Order
 * @type {Map<string, Order>}
 */
const orders = new Map();
const app = express();

// Each page view has its own cart.
app.get("/", (_, response) => {
  response.send(`
    <h1>Tides of the Chao Phraya</h1>
    <form method="post" action="/buy/${randomUUID()}"><button>Buy for 1590.00 THB</button></form>
  `);
});

// A second click on the same page leads to the same payment.
app.post("/buy/:cart", async (request, response) => {
  const { cart } = request.params;
  if (!/^[0-9a-f-]{36}$/.test(cart)) return response.sendStatus(404);
  // The server sets the price, never the page.
  const order = orders.get(cart) ?? { id: cart, attempt: 1, amount: "1590.00", currency: "THB", status: "waiting" };
  orders.set(cart, order);
  try {
    const checkoutUrl = await findCheckout(order);
    response.cookie("order", cart, { httpOnly: true, sameSite: "lax" });
    return response.redirect(303, checkoutUrl);
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return response.status(502).send("This cannot be paid now. Please try again.");
  }
});

/**
 * Returns the checkout URL of the order's open payment; creates a payment if there is none. A cancellation on
 * the checkout page causes no event, so the payment's status is read.
 * @param {Order} order
 */
async function findCheckout(order) {
  const { paymentId } = order;
  if (paymentId) {
    const known = await client.payments.get(paymentId);
    if (!["CANCELLED", "EXPIRED", "FAILED"].includes(known.status)) return known.checkout_url ?? "/order";
    if (order.paymentId === paymentId) {
      order.attempt += 1; // of two simultaneous clicks, only the first begins the next attempt
      delete order.paymentId;
    }
  }
  const { id, attempt, amount, currency } = order;
  const payment = await client.payments.create(
    {
      amount,
      currency,
      payer_uid: `guest-${id}`,
      metadata: { order_id: id, product: { name: "Tides of the Chao Phraya" } },
    },
    { idempotencyKey: keyOf(id, attempt) },
  );
  if (order.attempt === attempt) order.paymentId = payment.id;
  return payment.checkout_url;
}

/**
 * Returns the same UUID (version 8) for the same attempt.
 * @param {string} id
 * @param {number} attempt
 */
function keyOf(id, attempt) {
  const hex = createHash("sha256").update(`${id}|${attempt}`).digest("hex");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, "$1-$2-8$3-8$4-$5");
}

// The order is marked as paid once, even if its event arrives late or twice.
app.post("/webhooks", express.raw({ type: "*/*", limit: "64kb" }), async (request, response) => {
  try {
    const event = await webhooks.verify(request.body, request.headers, secrets);
    if (event.type === "payment.completed") {
      const paid = event.data.payment;
      const order = [...orders.values()].find((one) => one.paymentId === paid.id);
      const isRight = order?.amount === paid.amount && order.currency === paid.currency;
      if (order && isRight && order.status === "waiting") order.status = "paid";
    }
    response.sendStatus(204);
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    response.sendStatus(401);
  }
});

// Only the webhook marks an order as paid, not the buyer's return.
app.get("/order", (request, response) => {
  const [, id] = /(?:^|; )order=([0-9a-f-]{36})/.exec(request.headers.cookie ?? "") ?? [];
  const order = orders.get(id ?? "");
  if (!order) return response.status(404).send("You have no order.");
  return response.send(`<h1>Order ${order.id}</h1><p>Your order is ${order.status}.</p>`);
});

app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
