/** Other actions of buyers and staff. Responds with 409 if Medusa or the plugin rejects the action. */

import type { MedusaContainer } from "@medusajs/framework/types";
import type { MedusaRequest, MedusaResponse } from "@medusajs/framework/http";

import { change, complete, payAgain, refund } from "../../../../lib/shop";

type Body = { amount?: string } | undefined;
type Act = (container: MedusaContainer, id: string, body: Body) => Promise<unknown>;

const ACTS: Record<string, Act> = {
  change: (container, id) => change(container, id),
  complete: (container, id) => complete(container, id),
  pay_again: (container, id) => payAgain(container, id),
  refund: (container, id, body) => refund(container, id, body?.amount ?? ""),
};

export async function POST(request: MedusaRequest<Body>, response: MedusaResponse): Promise<void> {
  const { id = "", what = "" } = request.params;
  try {
    response.json((await ACTS[what]?.(request.scope, id, request.body)) ?? {});
  } catch (error) {
    response.status(409).json({ message: (error as Error).message });
  }
}
