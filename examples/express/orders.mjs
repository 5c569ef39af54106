// The shop's orders and their payments.
import { createHash } from "node:crypto";

import { Client, PayintentError } from "payintent-sdk";

/**
 * An order, with the payment of its latest attempt.
 * @typedef {{
 *   id: string, attempt: number, paymentId?: string, amount: string, currency: string,
 *   status: "waiting" | "unpaid" | "paid", handedOut: number
 * }} Order
 */

const ENDED_UNPAID = ["CANCELLED", "EXPIRED", "FAILED"];
/** The buyer's money may have arrived, so these payments need manual review. */
const REVIEWED = ["AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"];
const shopUrl = process.env["SHOP_URL"]?.replace(/\/$/, ""); // its origin is registered for the shop
/** A real shop stores its orders in a database. @type {Map<string, Order>} */
const orders = new Map();
export const client = new Client({ apiKey: required("PAYINTENT_API_KEY"), baseUrl: required("PAYINTENT_URL") });

/** @param {string} name */
export function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}

/** @param {string} id */
export const findOrder = (id) => orders.get(id);

/**
 * Returns the path of the page to which the buyer returns.
 * @param {Order} order
 */
export const pageOf = (order) => `/orders/${order.id}`;

/**
 * Returns the order with this id, and creates it on the first click. The server sets the price, never the page.
 * @param {string} id
 */
export function placeOrder(id) {
  /** @type {Order} */
  const newOrder = { id, attempt: 1, amount: "1590.00", currency: "THB", status: "waiting", handedOut: 0 };
  const order = orders.get(id) ?? newOrder;
  orders.set(id, order);
  return order;
}

/**
 * Returns the URL of the order's checkout, or of the order page if there is nothing to pay. If the payment has ended
 * unpaid, this function begins the next attempt. It reads the payment, because no event is sent when the buyer cancels,
 * and because events can be late.
 * @param {Order} order
 */
export async function findNextPage(order) {
  const { paymentId } = order;
  if (order.status === "paid") return pageOf(order);
  if (paymentId) {
    const payment = await client.payments.get(paymentId);
    if (["PENDING", "PROCESSING"].includes(payment.status)) return payment.checkout_url ?? pageOf(order);
    if (!ENDED_UNPAID.includes(payment.status) || isReviewed(payment)) return pageOf(order);
    beginAttempt(order, paymentId);
  }
  const { id, attempt, amount, currency } = order;
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

/**
 * Begins the next attempt. Of two concurrent clicks, only one changes the order.
 * @param {Order} order
 * @param {string} endedId
 */
function beginAttempt(order, endedId) {
  if (order.paymentId !== endedId || order.status === "paid") return;
  order.attempt += 1;
  order.status = "waiting";
  delete order.paymentId;
}

/**
 * Applies the status of a payment to its order. A paid order never changes again.
 * @param {{ id: string, status: string, amount: string, currency: string }} payment
 */
export function settle(payment) {
  const order = [...orders.values()].find((order) => order.paymentId === payment.id);
  if (!order || order.status === "paid") return;
  if (ENDED_UNPAID.includes(payment.status)) order.status = "unpaid";
  if (payment.status === "PAID" && payment.amount === order.amount && payment.currency === order.currency) {
    order.status = "paid";
    order.handedOut += 1;
  }
}

/**
 * Reads the order's payment, if there is one, and applies it.
 * @param {Order} order
 */
export async function refresh({ paymentId }) {
  if (!paymentId) return undefined;
  const payment = await client.payments.get(paymentId);
  settle(payment);
  return payment;
}

/** Refreshes all open orders, because a webhook can be lost. */
export async function poll() {
  for (const order of [...orders.values()].filter(({ status }) => status === "waiting")) {
    try {
      await refresh(order);
    } catch (error) {
      if (!(error instanceof PayintentError)) throw error;
      console.warn(`${order.paymentId} cannot be read: ${error.message}`); // the next poll reads it again
    }
  }
}

/**
 * Returns whether the buyer's money may have arrived, although the payment has ended.
 * @param {import("payintent-sdk").Payment} payment
 */
export const isReviewed = (payment) => REVIEWED.includes(payment.failure_reason ?? "");

/**
 * Returns the same UUID (version 8) for the same words.
 * @param {(string | number)[]} words
 */
export function keyOf(...words) {
  const hex = createHash("sha256").update(words.join("|")).digest("hex");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, "$1-$2-8$3-8$4-$5");
}
