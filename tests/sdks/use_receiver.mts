// Sends webhooks from standard input to a receiver; prints its responses and events.

import { WebhookReceiver } from "payintent-sdk/testing";

declare const process: { stdin: AsyncIterable<Uint8Array> };

interface Input {
  secrets: string[];
  payment: string;
  webhooks: { body: string; headers: Record<string, string> }[];
}

let text = "";
for await (const chunk of process.stdin) text += new TextDecoder().decode(chunk);
const { secrets, payment, webhooks } = JSON.parse(text) as Input;
const receiver = await WebhookReceiver.start({ secrets, port: 0 });
const statuses: number[] = [];

for (const { body, headers } of webhooks) {
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  statuses.push((await fetch(receiver.url, { method: "POST", body: bytes, headers })).status);
}
const event = await receiver.wait("payment.expired", { id: payment });
const errors: string[] = [];
for (const [type, id] of [["payment.failed", payment], ["payment.expired", "another"]] as const) {
  await receiver.wait(type, { id }, 0.01).catch((error: Error) => errors.push(error.message.split(" within")[0]!));
}
const eventIds = receiver.received.map(({ id }) => id);
await receiver.close();
console.log(
  JSON.stringify({
    statuses,
    event_ids: eventIds,
    refused: receiver.refused.length,
    event_type: event.type,
    errors,
  }),
);
