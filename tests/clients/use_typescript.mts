// Runs a merchant's actions with openapi-fetch and the types from openapi-typescript, and prints them
// as JSON. Arguments: the service's URL, the key, the id of a paid payment, a buyer who is denied.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

type NextAction = components["schemas"]["NextAction"];

/** Compiles only if the type distinguishes every kind of next action. */
export function leadsTo(action: NextAction): string | undefined {
  switch (action.type) {
    case "redirect":
      return action.redirect.url;
    case "embedded_card":
      return action.embedded_card.script_url;
    case "onchain_session":
      return action.onchain_session.url;
    case "wait":
    case "none":
      return action.fallback_url;
  }
}

function known<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`there is no ${what}`);
  return value;
}

const [base, key, paid, deniedPayer] = process.argv.slice(2);
const client = createClient<paths>({
  baseUrl: known(base, "address"),
  headers: { Authorization: `Bearer ${known(key, "key")}` },
});

async function create(payer_uid: string) {
  const { data } = await client.POST("/v1/payments", {
    params: { header: { "Idempotency-Key": crypto.randomUUID() } },
    body: { currency: "THB", amount: "1590.00", payer_uid, metadata: { order_id: "A-1009" } },
  });
  return known(data, "payment");
}

const created = await create("buyer-17");
if ("fds" in created) throw new Error("nobody has denied it");
const denied = await create(known(deniedPayer, "payer"));
if (!("fds" in denied)) throw new Error("nobody has denied it");

const payment_id: string = created.id;
const path = { payment_id };
const got = known((await client.GET("/v1/payments/{payment_id}", { params: { path } })).data, "payment");
const query = { status: "PENDING", created_from: got.created_at, limit: 10 } as const;
const listed = known((await client.GET("/v1/payments", { params: { query } })).data, "list");
const cancel = () => client.POST("/v1/payments/{payment_id}/cancel", { params: { path } });
const cancelled = known((await cancel()).data, "end");
const again = known((await cancel()).error, "refusal");

const refund = await client.POST("/v1/payments/{payment_id}/refunds", {
  params: {
    path: { payment_id: known(paid, "paid payment") },
    header: { "Idempotency-Key": crypto.randomUUID() },
  },
  body: { amount: "90.00", reason: "one page is torn" },
});
const refund_id = known(refund.data, "refund").id;
const seen = await client.GET("/v1/refunds/{refund_id}", { params: { path: { refund_id } } });

console.log(
  JSON.stringify({
    created: payment_id,
    denied: denied.fds.code,
    amount: got.amount,
    order: got.metadata["order_id"],
    listed: listed.data.map((found) => found.id),
    cancelled: cancelled.status,
    again: again.code,
    refund: refund_id,
    refunded: known(seen.data, "refund").amount,
  }),
);
