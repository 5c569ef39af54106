/**
 * The page of the storefront that a buyer comes back to. It asks Medusa for the order, and Medusa asks the service:
 * the query of the page decides nothing.
 */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { complete, standing } from "../../../../lib/shop";

export async function GET(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  const { id = "" } = request.params;
  try {
    await complete(request.scope, id);
  } catch {
    // It is not paid: the buyer is shown how it stands, and may pay again.
  }
  response.json(await standing(request.scope, id));
}
