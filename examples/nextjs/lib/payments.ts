import { createHash } from "node:crypto";

import { Client, PayintentError } from "payintent-sdk";
import type { Payment } from "payintent-sdk";

import { orders, pageOf, required } from "./orders";
import type { Order } from "./orders";

const ENDED_UNPAID = ["CANCELLED", "EXPIRED", "FAILED"];
/** The buyer's money may have arrived, so these payments need manual review. */
const REVIEWED = ["AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"];

/** Creates a client at run time, because the build environment does not contain the key. */
export function openClient(): Client {
  return new Client({ apiKey: required("PAYINTENT_API_KEY"), baseUrl: required("PAYINTENT_URL") });
}

/**
 * Returns the URL of the order's checkout, or of the order page if there is nothing to pay. If the payment
 * has ended unpaid, this function begins the next attempt. It reads the payment, because no event is sent when the
 * buyer cancels, and because events can be late.
 */
export async function findNextPage(order: Order): Promise<string> {
  const { paymentId } = order;
  const client = openClient();
  if (order.status === "paid") return pageOf(order);
  if (paymentId) {
    const payment = await client.payments.get(paymentId);
    if (["PENDING", "PROCESSING"].includes(payment.status)) return payment.checkout_url ?? pageOf(order);
    if (!ENDED_UNPAID.includes(payment.status) || isReviewed(payment)) return pageOf(order);
    beginAttempt(order, paymentId);
  }
  const { id, attempt, amount, currency } = order;
  const shopUrl = process.env["SHOP_URL"]?.replace(/\/$/, ""); // its origin is registered for the shop
  const returnUrl = shopUrl && shopUrl + pageOf(order);
  const newPayment = await client.payments.create(
    {
      amount,
      currency,
      payer_uid: `guest-${id}`,
      metadata: { order_id: id, product: { name: "Tides of the Chao Phraya" } },
      // Both are the order page, on which the buyer can try again.
      ...(returnUrl && { return_url: returnUrl, cancel_url: returnUrl }),
    },
    { idempotencyKey: keyOf(id, attempt) },
  );
  if (order.attempt === attempt) order.paymentId = newPayment.id;
  return newPayment.checkout_url;
}

/** Begins the next attempt. Of two concurrent clicks, only one changes the order. */
function beginAttempt(order: Order, endedId: string): void {
  if (order.paymentId !== endedId || order.status === "paid") return;
  order.attempt += 1;
  order.status = "waiting";
  delete order.paymentId;
}

/** Applies the status of a payment to its order. A paid order never changes again. */
export function settle(payment: { id: string; status: string; amount: string; currency: string }): void {
  const order = [...orders.values()].find((order) => order.paymentId === payment.id);
  if (!order || order.status === "paid") return;
  if (ENDED_UNPAID.includes(payment.status)) order.status = "unpaid";
  if (payment.status === "PAID" && payment.amount === order.amount && payment.currency === order.currency) {
    order.status = "paid";
    order.handedOut += 1;
  }
}

/** Reads the order's payment, if there is one, and applies it. */
export async function refresh({ paymentId }: Order): Promise<Payment | undefined> {
  if (!paymentId) return undefined;
  const payment = await openClient().payments.get(paymentId);
  settle(payment);
  return payment;
}

/** Refreshes all open orders, because a webhook can be lost. */
export async function poll(): Promise<void> {
  for (const order of [...orders.values()].filter(({ status }) => status === "waiting")) {
    try {
      await refresh(order);
    } catch (error) {
      if (!(error instanceof PayintentError)) throw error;
      console.warn(`${order.paymentId} cannot be read: ${error.message}`); // the next poll reads it again
    }
  }
}

/** Returns whether the buyer's money may have arrived, although the payment has ended. */
export function isReviewed(payment: Payment): boolean {
  return REVIEWED.includes(payment.failure_reason ?? "");
}

/** Returns the same UUID (version 8) for the same words. */
export function keyOf(...words: (string | number)[]): string {
  const hex = createHash("sha256").update(words.join("|")).digest("hex");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, "$1-$2-8$3-8$4-$5");
}
