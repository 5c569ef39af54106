import { notFound } from "next/navigation";
import { PayintentError } from "payintent-sdk";

import { orders } from "../../../lib/orders";
import type { Order } from "../../../lib/orders";
import { isReviewed, refresh } from "../../../lib/payments";

const IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you.";
const WAITING: [string, string] = ["Your order is waiting for your payment.", "Continue to payment"];
/** The order page's message and button label for each status of the payment. */
const TEXTS = new Map<string, [string, string]>([
  ["PENDING", WAITING],
  ["PROCESSING", ["Your payment is being processed.", "Continue to payment"]],
  ["FAILED", ["Your payment has failed. You have not been charged.", "Pay again"]],
  ["EXPIRED", ["Your payment expired before it was confirmed.", "Pay again"]],
  ["CANCELLED", ["Your payment was cancelled. You have not been charged.", "Pay again"]],
]);

/** Shows the order to the returning buyer. Ignores the query string, which anyone can forge. */
export default async function OrderPage({ params }: { params: Promise<{ id: string }> }) {
  const order = orders.get((await params).id);
  if (!order) notFound();
  const [text, label] = await describe(order);
  return (
    <>
      <h1>Order {order.id}</h1>
      <p>{text}</p>
      {label && (
        <form method="post" action={`/buy/${order.id}`}>
          <button>{label}</button>
        </form>
      )}
    </>
  );
}

/** Returns the page's message about the order, and its button's label ("" for no button). */
async function describe(order: Order): Promise<[string, string]> {
  try {
    const payment = isPaid(order) ? undefined : await refresh(order);
    if (isPaid(order)) return ["Your order is paid.", ""];
    if (!payment) return WAITING;
    if (isReviewed(payment)) return [IN_REVIEW, ""];
    return TEXTS.get(payment.status) ?? ["We are confirming your payment.", ""];
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return ["We cannot check your payment at the moment. Please reload this page.", ""];
  }
}

function isPaid({ status }: Order): boolean {
  return status === "paid";
}
