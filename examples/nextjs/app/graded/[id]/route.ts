import { isGraded, notServed } from "../../../lib/graded";
import { orders } from "../../../lib/orders";
import { openClient } from "../../../lib/payments";

/** Shows the order. Reads the refunded amount from the service, because operators can also make refunds. */
export async function GET(_: Request, { params }: { params: Promise<{ id: string }> }) {
  const order = orders.get((await params).id);
  if (!isGraded() || !order?.paymentId) return notServed();
  const { refunded_amount: refunded } = await openClient().payments.get(order.paymentId);
  return Response.json({ status: order.status, handed_out: order.handedOut, refunded });
}
