import { cookies } from "next/headers";
import { notFound } from "next/navigation";

import { orders } from "../../lib/orders";

/** The webhook alone makes an order paid, not the buyer's coming back. */
export default async function OrderPage() {
  const order = orders.get((await cookies()).get("order")?.value ?? "");
  if (!order) notFound();
  return (
    <>
      <h1>Order {order.id}</h1>
      <p>{`Your order is ${order.status}.`}</p>
    </>
  );
}
