// Makes a call to each of several servers with scripted responses; prints each result.
// Standard input, as JSON: the URL, the timeout in seconds and the kind of call for each server.

import { ApiError, Client } from "payintent-sdk";

declare const process: { stdin: AsyncIterable<Uint8Array> };

async function input(): Promise<string> {
  let text = "";
  for await (const chunk of process.stdin) text += new TextDecoder().decode(chunk);
  return text;
}

async function ending(baseUrl: string, timeoutS: number, kind: string): Promise<unknown> {
  const retries = { tries: 3, firstWaitMs: 1, totalMs: 30_000 };
  const client = new Client({ apiKey: "sk_test_x", baseUrl, timeoutMs: timeoutS * 1_000, retries });
  const payment = { currency: "THB", payer_uid: "b" };
  const calls: Record<string, () => Promise<{ id: string }>> = {
    create: () => client.payments.create({ ...payment, amount: "1" }),
    float: () => client.payments.create({ ...payment, amount: 1.5 as unknown as string }),
    get: () => client.payments.get("pay_1"),
    replay: () => client.events.replay("e"),
    iterate: async () => {
      let id = "";
      for await (const payment of client.payments.iterate()) id += payment.id;
      return { id };
    },
  };
  try {
    return (await calls[kind]!()).id;
  } catch (error) {
    const after = error instanceof ApiError ? (error.retryAfterS ?? null) : null;
    return [(error as Error).constructor.name, after];
  }
}

const endings: unknown[] = [];
for (const words of JSON.parse(await input()) as [string, number, string][]) {
  endings.push(await ending(...words));
}
console.log(JSON.stringify(endings));
