import { WebhookError, webhooks } from "payintent-sdk";

import { orders, required } from "../../lib/orders";

const BODY_BYTES_MAX = 64 * 1024;

/** Believes what is signed; an order is paid once, however often and late an event comes. */
export async function POST(request: Request) {
  const body = await bounded(request);
  if (body === null) return new Response(null, { status: 413 });
  const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two while one is being replaced
  try {
    const event = await webhooks.verify(body, request.headers, secrets);
    if (event.type === "payment.completed") {
      const paid = event.data.payment;
      const order = [...orders.values()].find((one) => one.paymentId === paid.id);
      const isRight = order?.amount === paid.amount && order.currency === paid.currency;
      if (order && isRight && order.status === "waiting") order.status = "paid";
    }
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    return new Response(null, { status: 401 });
  }
  return new Response(null, { status: 204 });
}

/** Gives the raw bytes, or null where there are too many. */
async function bounded(request: Request): Promise<Uint8Array | null> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.length;
    if (size > BODY_BYTES_MAX) return null;
    parts.push(part);
  }
  return Buffer.concat(parts);
}
