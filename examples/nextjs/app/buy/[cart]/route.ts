import { Client, PayintentError } from "payintent-sdk";

import { findCheckout } from "../../../lib/checkout";
import { orders, required } from "../../../lib/orders";
import type { Order } from "../../../lib/orders";

/** Redirects the buyer to the cart's payment. A second click leads to the same payment. */
export async function POST(_: Request, { params }: { params: Promise<{ cart: string }> }) {
  const { cart } = await params;
  if (!/^[0-9a-f-]{36}$/.test(cart)) return new Response(null, { status: 404 });
  const client = new Client({ apiKey: required("PAYINTENT_API_KEY"), baseUrl: required("PAYINTENT_URL") });
  // The server sets the price, never the page.
  const fresh: Order = { id: cart, attempt: 1, amount: "1590.00", currency: "THB", status: "waiting" };
  const order = orders.get(cart) ?? fresh;
  orders.set(cart, order);
  try {
    const location = await findCheckout(client, order);
    const cookie = `order=${cart}; Path=/; HttpOnly; SameSite=Lax`;
    return new Response(null, { status: 303, headers: { location, "set-cookie": cookie } });
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return new Response("This cannot be paid now. Please try again.", { status: 502 });
  }
}
