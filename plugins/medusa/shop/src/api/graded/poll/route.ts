/** Runs the plugin's poll now, which Medusa runs every few minutes. */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { poll } from "../../../lib/shop";

export async function POST(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  await poll(request.scope);
  response.sendStatus(204);
}
