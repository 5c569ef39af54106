// Runs a merchant's actions with the TypeScript SDK, and prints them as JSON. Arguments: the
// service's URL, the key, the id of a paid payment, a denied buyer.

import { Client, InvalidStateError, PaymentDeniedError } from "payintent-sdk";

declare const process: { argv: string[] };

const [, , baseUrl = "", apiKey = "", paid = "", deniedPayer = ""] = process.argv;
const client = new Client({ apiKey, baseUrl });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const result: T[] = [];
  for await (const item of items) result.push(item);
  return result;
}

function assertEqual(actual: unknown, expected: unknown) {
  const [actualText, expectedText] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (actualText !== expectedText) throw new Error(`${actualText} is not ${expectedText}`);
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
assertEqual((await all(client.refunds.iterate(paid))).map((item) => item.id), [refund.id]);
assertEqual((await all(client.refunds.iterateUpdated())).map((item) => item.id), [refund.id]);
assertEqual(
  (await all(client.events.iterate({ limit: 1 }))).map((item) => item.event.type),
  ["payment.completed", "payment.cancelled"],
);
assertEqual((await client.cases.list()).data, []);
assertEqual((await client.disputes.list()).data, []);
assertEqual((await all(client.statements.iterate())), []);
assertEqual((await client.statements.balance()).data.map((balance) => balance.currency), ["THB"]);
assertEqual((await client.catalog.get()).countries.length > 0, true);
const stopped = await failure(client.payments.get(created.id, { signal: AbortSignal.abort() }));
assertEqual((stopped as Error).name, "AbortError");

console.log(
  JSON.stringify({
    created: created.id,
    denied: denied instanceof PaymentDeniedError && denied.decision.code,
    amount: payment.amount,
    order: payment.metadata["order_id"],
    listed: listed.map((item) => item.id),
    cancelled: cancelled.status,
    again: again instanceof InvalidStateError && again.code,
    refund: refund.id,
    refunded: refund.amount,
  }),
);
