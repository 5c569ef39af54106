import { isGraded, notServed } from "../../lib/graded";
import { placeOrder } from "../../lib/orders";
import { findNextPage } from "../../lib/payments";

/** Clicks Buy for `payintent-cli grade`; see docs/integrate/grader.md. */
export async function POST(request: Request) {
  if (!isGraded()) return notServed();
  const { cart_id } = (await request.json()) as { cart_id: string };
  const order = placeOrder(cart_id);
  await findNextPage(order);
  const { id, paymentId, amount, currency } = order;
  return Response.json({ order_id: id, payment_id: paymentId, amount, currency }, { status: 201 });
}
