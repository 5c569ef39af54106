/** How an order stands; its id is its cart's, for it is an order when it is paid. */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { standing } from "../../../lib/shop";

export async function GET(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  response.json(await standing(request.scope, request.params["id"] ?? ""));
}
