/** Runs the plugin's scheduled poll now. */

import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { poll } from "../../../lib/shop";

export async function POST(request: MedusaRequest, response: MedusaResponse): Promise<void> {
  await poll(request.scope);
  response.sendStatus(204);
}
