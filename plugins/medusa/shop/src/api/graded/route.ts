/** Clicks Buy for `payintent-cli grade`; see docs/integrate/grader.md. */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { buy } from "../../lib/shop";

export async function POST(request: MedusaRequest<{ cart_id: string }>, response: MedusaResponse): Promise<void> {
  response.status(201).json(await buy(request.scope, request.body.cart_id));
}
