import { createHash } from "node:crypto";

import type { Client } from "payintent-sdk";

import type { Order } from "./orders";

/**
 * Returns the checkout URL of the order's open payment; creates a payment if there is none. A
 * cancellation on the checkout page causes no event, so the payment's status is read.
 */
export async function findCheckout(client: Client, order: Order): Promise<string> {
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

/** Returns the same UUID (version 8) for the same attempt. */
function keyOf(id: string, attempt: number): string {
  const hex = createHash("sha256").update(`${id}|${attempt}`).digest("hex");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, "$1-$2-8$3-8$4-$5");
}
