/** Creates each refund once, and only if Medusa and the service agree on the refunded amount. */

import { setTimeout } from "node:timers/promises";

import { MedusaError } from "@medusajs/framework/utils";
import { PayintentError } from "payintent-sdk";
import type { Client, Refund } from "payintent-sdk";

import { isSame, total } from "./amounts";
import { keyOf } from "./names";
import type { Session } from "./session";

const POLLS_MAX = 20;
const POLL_MS = 500;

/**
 * Refunds `amount` of a payment. Medusa has already recorded refunds of `session.refunded` in total.
 *
 * If the response to a refund is lost, Medusa does not record the refund, and uses a different name for the next
 * attempt. The name is therefore not suitable as the idempotency key, which contains the number of refunds at the
 * service instead. Two simultaneous refunds have the same key but different reasons, so the service rejects the second
 * refund. If an earlier response was lost, the totals at Medusa and at the service differ, and the refund is rejected.
 */
export async function refundOnce(client: Client, session: Session, amount: string, name: string): Promise<void> {
  try {
    let count = 0;
    let sum = "0";
    for await (const refund of client.refunds.iterate(session.id)) {
      count += 1;
      if (refund.status !== "FAILED") sum = total(sum, refund.amount);
    }
    if (!isSame({ ...session, amount: sum }, { ...session, amount: session.refunded })) {
      throw createError(
        `${sum} of ${session.id} was refunded, but Medusa has recorded ${session.refunded}. Make the refund at the service.`,
      );
    }
    const refund = { amount, reason: `Medusa ${name}` };
    const newRefund = await client.refunds.create(session.id, refund, {
      idempotencyKey: keyOf(session.id, "refund", count),
    });
    const result = await waitForEnd(client, newRefund);
    if (result.status === "FAILED") throw createError(`the refund failed: ${result.failure_reason ?? "no reason"}`);
  } catch (error) {
    throw error instanceof PayintentError ? createError(error.message) : error;
  }
}

/** Waits up to 10 seconds for a refund to end. If it is still pending, it is treated as successful. */
async function waitForEnd(client: Client, refund: Refund): Promise<Refund> {
  let current = refund;
  for (let polls = 0; current.status === "PENDING" && polls < POLLS_MAX; polls += 1) {
    await setTimeout(POLL_MS);
    current = await client.refunds.get(refund.id);
  }
  return current;
}

/** Medusa's admin shows the message of this error. */
function createError(text: string): MedusaError {
  return new MedusaError(MedusaError.Types.NOT_ALLOWED, text);
}
