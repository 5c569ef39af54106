/** Shows the status of an order. Its id is the id of its cart, because only a paid cart becomes an order. */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { standing } from "../../../lib/shop";

export async function GET(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  response.json(await standing(request.scope, request.params["id"] ?? ""));
}
