import { PayintentError } from "payintent-sdk";

import { placeOrder } from "../../../lib/orders";
import { findNextPage } from "../../../lib/payments";

/** Redirects the buyer to the order's payment. Later attempts also use this route. */
export async function POST(_: Request, { params }: { params: Promise<{ id: string }> }) {
  const { id } = await params;
  if (!/^[0-9a-f-]{36}$/.test(id)) return new Response(null, { status: 404 });
  try {
    const location = await findNextPage(placeOrder(id));
    return new Response(null, { status: 303, headers: { location } });
  } catch (error) {
    if (!(error instanceof PayintentError)) throw error;
    return new Response("The payment could not be started. Please try again.", { status: 502 });
  }
}
