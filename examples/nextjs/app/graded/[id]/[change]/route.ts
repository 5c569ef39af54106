import { ApiError } from "payintent-sdk";

import { isGraded, notServed } from "../../../../lib/graded";
import { orders } from "../../../../lib/orders";
import { keyOf, openClient } from "../../../../lib/payments";

/** Refunds returned goods, and rejects other changes, because an order has one price and one open payment at a time. */
export async function POST(request: Request, { params }: { params: Promise<{ id: string; change: string }> }) {
  const { id, change } = await params;
  const paymentId = orders.get(id)?.paymentId;
  if (!isGraded() || !paymentId) return notServed();
  if (change !== "refund") return Response.json({ message: `The order does not allow ${change}.` }, { status: 409 });
  const { return_id, amount } = (await request.json()) as { return_id: string; amount: string };
  try {
    // A second click for the same return uses the same key.
    await openClient().refunds.create(paymentId, { amount }, { idempotencyKey: keyOf(id, return_id) });
    return new Response(null, { status: 201 });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return Response.json({ message: error.message }, { status: 409 });
  }
}
