// Runs a merchant's actions with the TypeScript SDK, and prints them as JSON. Arguments: the
// service's URL, the key, the id of a paid payment, a buyer who is denied.

import { Client, InvalidStateError, PaymentDeniedError } from "payintent-sdk";

declare const process: { argv: string[] };

const [, , baseUrl = "", apiKey = "", paid = "", deniedPayer = ""] = process.argv;
const client = new Client({ apiKey, baseUrl });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

function same(found: unknown, expected: unknown) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${one} is not ${other}`);
}

async function failure(call: Promise<unknown>): Promise<unknown> {
  return call.then(() => undefined, (error: unknown) => error);
}

const created = await client.payments.create({
  amount: "1590.00",
  currency: "THB",
  payer_uid: "buyer-17",
  metadata: { order_id: "A-1009" },
});
const denied = await failure(
  client.payments.create({ amount: "1.00", currency: "THB", payer_uid: deniedPayer }),
);
const payment = await client.payments.get(created.id);
const listed = await all(
  client.payments.iterate({ status: "PENDING", created_from: new Date(payment.created_at), limit: 1 }),
);
const cancelled = await client.payments.cancel(created.id);
const again = await failure(client.payments.cancel(created.id));
const part = await client.refunds.create(paid, { amount: "90.00", reason: "one page is torn" });
const refund = await client.refunds.get(part.id);
same((await all(client.refunds.iterate(paid))).map((found) => found.id), [refund.id]);
same((await all(client.refunds.iterateUpdated())).map((found) => found.id), [refund.id]);
same(
  (await all(client.events.iterate({ limit: 1 }))).map((found) => found.event.type),
  ["payment.completed", "payment.cancelled"],
);
same((await client.cases.list()).data, []);
same((await client.disputes.list()).data, []);
same((await all(client.statements.iterate())), []);
same((await client.statements.balance()).data.map((balance) => balance.currency), ["THB"]);
same((await client.catalog.get()).countries.length > 0, true);
const stopped = await failure(client.payments.get(created.id, { signal: AbortSignal.abort() }));
same((stopped as Error).name, "AbortError");

console.log(
  JSON.stringify({
    created: created.id,
    denied: denied instanceof PaymentDeniedError && denied.decision.code,
    amount: payment.amount,
    order: payment.metadata["order_id"],
    listed: listed.map((found) => found.id),
    cancelled: cancelled.status,
    again: again instanceof InvalidStateError && again.code,
    refund: refund.id,
    refunded: refund.amount,
  }),
);
