import { Client, PayintentError } from "payintent-sdk";

import { orders, required } from "../../../lib/orders";

/** Creates the payment of a cart and sends the buyer to it; a second click finds the first one. */
export async function POST(_: Request, { params }: { params: Promise<{ cart: string }> }) {
  const { cart } = await params;
  if (!/^[0-9a-f-]{36}$/.test(cart)) return new Response(null, { status: 404 });
  const client = new Client({ apiKey: required("PAYINTENT_KEY"), baseUrl: required("PAYINTENT_URL") });
  try {
    const payment = await client.payments.create(
      {
        amount: "1590.00", // the server sets the price, never the page
        currency: "THB",
        payer_uid: `guest-${cart}`,
        metadata: { order_id: cart, product: { name: "Tides of the Chao Phraya" } },
      },
      { idempotencyKey: cart },
    );
    const { id: paymentId, amount, currency } = payment;
    if (!orders.has(cart)) orders.set(cart, { id: cart, paymentId, amount, currency, status: "waiting" });
    const cookie = `order=${cart}; Path=/; HttpOnly; SameSite=Lax`;
    return new Response(null, { status: 303, headers: { location: payment.checkout_url, "set-cookie": cookie } });
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return new Response("This cannot be paid now. Please try again.", { status: 502 });
  }
}
