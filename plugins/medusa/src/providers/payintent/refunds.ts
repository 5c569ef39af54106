/** Creates each refund once, and only if Medusa and the service agree on the refunded amount. */

import { setTimeout } from "node:timers/promises";

import { MedusaError } from "@medusajs/framework/utils";
import { PayintentError } from "payintent-sdk";
import type { Client, Refund } from "payintent-sdk";

import { isSame, total } from "./amounts";
import { keyOf } from "./names";
import type { Session } from "./session";

const LOOKS = 20;
const LOOK_MS = 500;

/**
 * Refunds `amount` of a payment. Medusa has already recorded refunds of `session.refunded`.
 *
 * If the response to a refund is lost, Medusa does not record the refund, and uses a different name for the next
 * attempt. The name is therefore not suitable as the idempotency key, which contains the number of refunds at the
 * service instead. Two simultaneous refunds have the same key but different reasons, so the service rejects the second
 * refund. If an earlier response was lost, the sums at Medusa and at the service differ, and the refund is rejected.
 */
export async function giveBack(client: Client, session: Session, amount: string, name: string): Promise<void> {
  try {
    let before = 0;
    let given = "0";
    for await (const refund of client.refunds.iterate(session.id)) {
      before += 1;
      if (refund.status !== "FAILED") given = total(given, refund.amount);
    }
    if (!isSame({ ...session, amount: given }, { ...session, amount: session.refunded })) {
      throw refusal(
        `${given} of ${session.id} was refunded, but Medusa has recorded ${session.refunded}. Make the refund at the service.`,
      );
    }
    const refund = { amount, reason: `Medusa ${name}` };
    const made = await client.refunds.create(session.id, refund, {
      idempotencyKey: keyOf(session.id, "refund", before),
    });
    const ended = await settled(client, made);
    if (ended.status === "FAILED") throw refusal(`the refund failed: ${ended.failure_reason ?? "no reason"}`);
  } catch (error) {
    throw error instanceof PayintentError ? refusal(error.message) : error;
  }
}

/** Waits up to 10 seconds for a refund to end. If it is still pending, it is treated as successful. */
async function settled(client: Client, made: Refund): Promise<Refund> {
  let refund = made;
  for (let looked = 0; refund.status === "PENDING" && looked < LOOKS; looked += 1) {
    await setTimeout(LOOK_MS);
    refund = await client.refunds.get(made.id);
  }
  return refund;
}

/** Medusa's admin shows the message of this error. */
function refusal(text: string): MedusaError {
  return new MedusaError(MedusaError.Types.NOT_ALLOWED, text);
}
