import { notFound } from "next/navigation";
import { PayintentError } from "payintent-sdk";
import type { Payment } from "payintent-sdk";

import { orders } from "../../../lib/orders";
import type { Order } from "../../../lib/orders";
import { openClient } from "../../../lib/payments";

const WAITING: [string, string] = ["Your order is waiting for your payment.", "Continue to payment"];
/** What the order page says for each status of the payment, and the label of its button. */
const TEXTS = new Map<string, [string, string]>([
  ["PENDING", WAITING],
  ["PROCESSING", ["Your payment is being processed.", "Continue to payment"]],
  ["FAILED", ["Your payment has failed. You have not been charged.", "Pay again"]],
  ["EXPIRED", ["Your payment has expired. You have not been charged.", "Pay again"]],
  ["CANCELLED", ["Your payment was cancelled. You have not been charged.", "Pay again"]],
]);

/** Shows the order to the buyer who returns. Ignores the query, which anyone can write. */
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

/** Returns what the page says about the order, and the label of its button, if any. */
async function describe({ status, paymentId }: Order): Promise<[string, string]> {
  if (status === "paid") return ["Your order is paid.", ""];
  if (!paymentId) return WAITING;
  try {
    const payment = await openClient().payments.get(paymentId);
    if (isMismatch(payment)) return ["We have received a different amount. We will contact you.", ""];
    return TEXTS.get(payment.status) ?? ["We are confirming your payment.", ""];
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return ["We cannot read your payment now. Please reload this page.", ""];
  }
}

/** Returns whether the buyer has paid, but not what the order costs. */
function isMismatch({ failure_reason: reason }: Payment): boolean {
  return reason === "AMOUNT_MISMATCH" || reason === "TOKEN_MISMATCH";
}
