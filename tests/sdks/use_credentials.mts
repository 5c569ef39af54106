// Uses keys, URLs and secrets as read from files; prints the sent values or the errors.
// Standard input, as JSON: triples of a kind of text, the text and a webhook. Argument: a URL.

import { Client, webhooks } from "payintent-sdk";
import { WebhookReceiver } from "payintent-sdk/testing";

const { inspect } = (await import("node:util" as string)) as {
  inspect: (value: unknown, options?: object) => string;
};
declare const process: { stdin: AsyncIterable<Uint8Array>; argv: string[] };

interface SignedWebhook {
  body: string;
  headers: Record<string, string>;
  now: number;
}

async function use(kind: string, text: string, base: string, webhook: SignedWebhook): Promise<string> {
  if (kind === "secret") {
    await (await WebhookReceiver.start({ secrets: text, port: 0 })).close();
    return (await webhooks.verify(webhook.body, webhook.headers, text, { nowS: webhook.now })).type;
  }
  const apiKey = kind === "key" ? text : "sk_test_x";
  const baseUrl = kind === "url" ? text : base;
  const client = new Client({ apiKey, baseUrl, retries: { tries: 1 } });
  if (kind === "id") return JSON.stringify(await client.refunds.list(text));
  if (kind === "idempotency key") {
    const order = { amount: "1", currency: "THB", payer_uid: "buyer-1" };
    return (await client.payments.create(order, { idempotencyKey: text })).id;
  }
  const shown = inspect(client, { depth: 9, showHidden: true }) + JSON.stringify(client) + String(client);
  if (shown.includes(apiKey.trim())) throw new Error("the client shows its key");
  return (await client.payments.get("pay_1")).id;
}

let input = "";
for await (const chunk of process.stdin) input += new TextDecoder().decode(chunk);
const endings: string[][] = [];
for (const [kind, text, webhook] of JSON.parse(input) as [string, string, SignedWebhook][]) {
  try {
    endings.push(["", await use(kind, text, process.argv[2]!, webhook)]);
  } catch (error) {
    endings.push([(error as Error).name, inspect(error)]);
  }
}
console.log(JSON.stringify([endings, ""]));
