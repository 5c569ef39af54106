/**
 * The page of the storefront to which the buyer returns. It completes the cart in Medusa, which reads the payment from
 * the service, and ignores the query string.
 */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { complete, standing } from "../../../../lib/shop";

export async function GET(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  const { id = "" } = request.params;
  try {
    await complete(request.scope, id);
  } catch {
    // The cart is not paid. The buyer sees the status of the order and can pay again.
  }
  response.json(await standing(request.scope, id));
}
