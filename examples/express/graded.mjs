// The routes with which `payintent-cli grade` tests the shop; see docs/integrate/grader.md.
import express from "express";
import { ApiError } from "payintent-sdk";

import { client, findNextPage, findOrder, keyOf, placeOrder, poll, required } from "./orders.mjs";

export const routes = express.Router();
routes.use(express.json());

/** Returns whether the shop serves these routes, which requires SHOP_GRADED and a test key. */
export function isGraded() {
  return process.env["SHOP_GRADED"] !== undefined && required("PAYINTENT_API_KEY").startsWith("sk_test_");
}

// Clicks Buy.
routes.post("/", async (request, response) => {
  const order = placeOrder(request.body.cart_id);
  await findNextPage(order);
  const { id, paymentId, amount, currency } = order;
  response.status(201).json({ order_id: id, payment_id: paymentId, amount, currency });
});

// Runs the scheduled poll now.
routes.post("/poll", async (_, response) => {
  await poll();
  response.sendStatus(204);
});

// Shows the order. Reads the refunded amount from the service, because operators can also make refunds.
routes.get("/:id", async (request, response) => {
  const order = findOrder(request.params.id);
  if (!order?.paymentId) return response.sendStatus(404);
  const { refunded_amount: refunded } = await client.payments.get(order.paymentId);
  return response.json({ status: order.status, handed_out: order.handedOut, refunded });
});

// Refunds returned goods. A second click for the same return uses the same key.
routes.post("/:id/refund", async (request, response) => {
  const order = findOrder(request.params.id);
  if (!order?.paymentId) return response.sendStatus(404);
  const { return_id, amount } = request.body;
  try {
    await client.refunds.create(order.paymentId, { amount }, { idempotencyKey: keyOf(order.id, return_id) });
    return response.sendStatus(201);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return response.status(409).json({ message: error.message });
  }
});

// Rejects a change, because an order has one price and one open payment at a time.
routes.post("/:id/:change", (request, response) => {
  response.status(409).json({ message: `The order ${request.params.id} does not allow ${request.params.change}.` });
});
