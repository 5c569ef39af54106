/** Refunds: each made once, and only while Medusa and the service agree on what was given back. */

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
 * Gives money back; Medusa then has `session.refunded` and `amount`.
 *
 * Medusa forgets a refund whose answer it did not get, and names the next try anew, so its name is
 * no idempotency key. The number of refunds at the service is: two at the same time have the same
 * key and another reason, and the service refuses the second. One that was made although nobody
 * heard of it is found by the sums, which then differ.
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
      throw refusal(`${given} of ${session.id} was given back, Medusa knows of ${session.refunded}: refund it at the service`);
    }
    const refund = { amount, reason: `Medusa ${name}` };
    const made = await client.refunds.create(session.id, refund, {
      idempotencyKey: keyOf(session.id, "refund", before),
    });
    const ended = await settled(client, made);
    if (ended.status === "FAILED") throw refusal(`the refund failed: ${ended.failure_reason ?? "no reason was given"}`);
  } catch (error) {
    throw error instanceof PayintentError ? refusal(error.message) : error;
  }
}

/** Waits a while for a refund to end; one that is on its way for longer is believed. */
async function settled(client: Client, made: Refund): Promise<Refund> {
  let refund = made;
  for (let looked = 0; refund.status === "PENDING" && looked < LOOKS; looked += 1) {
    await setTimeout(LOOK_MS);
    refund = await client.refunds.get(made.id);
  }
  return refund;
}

/** Medusa shows the text of these to its people. */
function refusal(text: string): MedusaError {
  return new MedusaError(MedusaError.Types.NOT_ALLOWED, text);
}
