import { WebhookError, webhooks } from "payintent-sdk";

import { required } from "../../lib/orders";
import { settle } from "../../lib/payments";

const BODY_BYTES_MAX = 64 * 1024;

/** Verifies the signature, and applies the event once, even if it arrives late or twice. */
export async function POST(request: Request) {
  const body = await readBody(request);
  if (body === null) return new Response(null, { status: 413 });
  const secrets = required("PAYINTENT_WEBHOOK_SECRET").split(" "); // two during a rotation
  try {
    const event = await webhooks.verify(body, request.headers, secrets);
    const { payment } = event.data; // can be missing from an event of an unknown type
    if (payment) settle(payment);
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    return new Response(null, { status: 401 });
  }
  return new Response(null, { status: 204 });
}

/** Returns the raw body, or null if it is too large. */
async function readBody(request: Request): Promise<Uint8Array | null> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.length;
    if (size > BODY_BYTES_MAX) return null;
    parts.push(part);
  }
  return Buffer.concat(parts);
}
