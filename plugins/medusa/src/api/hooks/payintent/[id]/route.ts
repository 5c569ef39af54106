/**
 * Webhooks: `POST /hooks/payintent/:id`, where `id` is the provider's in `medusa-config.ts`.
 *
 * Medusa has a route of its own for them, which answers 200 before it looks, and then keeps the
 * event in memory. This one answers when the cart is an order, so that what an outage of the shop
 * has lost comes again.
 */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";
import { Modules } from "@medusajs/framework/utils";
import { WebhookError } from "payintent-sdk";

const PROCESS_PAYMENT = "process-payment-workflow"; // of Medusa; it locks the cart

export async function POST(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  const webhook = {
    data: request.body as Record<string, unknown>,
    rawData: (request.rawBody as Buffer | undefined) ?? "", // nothing, where it is not called JSON
    headers: request.headers,
  };
  try {
    const provider = `payintent_${request.params["id"]}`;
    const input = await request.scope
      .resolve(Modules.PAYMENT)
      .getWebhookActionAndData({ provider, payload: webhook });
    // The others change nothing in Medusa: the buyer tries again from the cart.
    if (input.action === "captured") {
      await request.scope.resolve(Modules.WORKFLOW_ENGINE).run(PROCESS_PAYMENT, { input });
    }
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error; // 500: the service sends it again
    response.sendStatus(401);
    return;
  }
  response.sendStatus(204);
}
