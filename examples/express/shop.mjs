// A shop with one book, in Express: README.md says how to start it.
import { randomUUID } from "node:crypto";

import express from "express";
import { Client, PayintentError, WebhookError, webhooks } from "payintent-sdk";

/** @param {string} name */
function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}

const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two while one is being replaced
const client = new Client({ apiKey: required("PAYINTENT_KEY"), baseUrl: required("PAYINTENT_URL") });
/**
 * A real shop keeps them in its database.
 * @type {Map<string, { id: string, paymentId: string, amount: string, currency: string, status: string }>}
 */
const orders = new Map();
const app = express();

// Each page is a cart of its own.
app.get("/", (_, response) => {
  response.send(`
    <h1>Tides of the Chao Phraya</h1>
    <form method="post" action="/buy/${randomUUID()}"><button>Buy for 1590.00 THB</button></form>
  `);
});

// A second click on the same page finds the payment of the first one.
app.post("/buy/:cart", async (request, response) => {
  const { cart } = request.params;
  if (!/^[0-9a-f-]{36}$/.test(cart)) return response.sendStatus(404);
  try {
    const payment = await client.payments.create(
      {
        amount: "1590.00", // the server sets the price, never the page
        currency: "THB",
        payer_uid: `guest-${cart}`,
        metadata: { order_id: cart, product: { name: "Tides of the Chao Phraya" } },
      },
      { idempotencyKey: cart },
    );
    const { id: paymentId, amount, currency } = payment;
    if (!orders.has(cart)) orders.set(cart, { id: cart, paymentId, amount, currency, status: "waiting" });
    response.cookie("order", cart, { httpOnly: true, sameSite: "lax" });
    return response.redirect(303, payment.checkout_url);
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return response.status(502).send("This cannot be paid now. Please try again.");
  }
});

// An order is paid once, however often and late an event comes.
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

// The webhook alone makes an order paid, not the buyer's coming back.
app.get("/order", (request, response) => {
  const [, id] = /(?:^|; )order=([0-9a-f-]{36})/.exec(request.headers.cookie ?? "") ?? [];
  const order = orders.get(id ?? "");
  if (!order) return response.status(404).send("You have no order.");
  return response.send(`<h1>Order ${order.id}</h1><p>Your order is ${order.status}.</p>`);
});

app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
