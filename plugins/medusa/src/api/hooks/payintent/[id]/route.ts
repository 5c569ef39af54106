/**
 * Receives webhooks at `POST /hooks/payintent/:id`. `id` is the provider's id in `medusa-config.ts`.
 *
 * Medusa's own route responds with 200 before it processes the event, which it keeps in memory. This route responds
 * after the cart has become an order, so that the service retries events that the shop has lost in an outage.
 */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";
import { Modules } from "@medusajs/framework/utils";
import { WebhookError } from "payintent-sdk";

const PROCESS_PAYMENT = "process-payment-workflow"; // Medusa's workflow, which locks the cart

export async function POST(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  const webhook = {
    data: request.body as Record<string, unknown>,
    rawData: (request.rawBody as Buffer | undefined) ?? "", // undefined if the content type is not JSON
    headers: request.headers,
  };
  try {
    const provider = `payintent_${request.params["id"]}`;
    const input = await request.scope
      .resolve(Modules.PAYMENT)
      .getWebhookActionAndData({ provider, payload: webhook });
    // Other actions do not change anything in Medusa. The buyer can try again from the cart.
    if (input.action === "captured") {
      await request.scope.resolve(Modules.WORKFLOW_ENGINE).run(PROCESS_PAYMENT, { input });
    }
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error; // the response is 500, and the service retries
    response.sendStatus(401);
    return;
  }
  response.sendStatus(204);
}
