// A Cloudflare Worker that uses the library like a shop, with its actions as JSON.

import { Client, webhooks } from "payintent-sdk";

async function verify({ body, headers, secrets, now }) {
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  const event = await webhooks.verify(bytes, headers, secrets, { nowS: now });
  return `${event.type}/${event.id}`;
}

async function sell({ apiKey, baseUrl }) {
  const client = new Client({ apiKey, baseUrl, retries: { tries: 3, firstWaitMs: 1 } });
  const payment = await client.payments.create({ amount: "1.00", currency: "THB", payer_uid: "b" });
  const ids = [];
  for await (const item of client.payments.iterate({ limit: 1 })) ids.push(item.id);
  await client.payments.cancel(payment.id);
  return { listed: ids.includes(payment.id), status: (await client.payments.get(payment.id)).status };
}

async function fail({ apiKey, baseUrl, timeoutMs }) {
  const client = new Client({ apiKey, baseUrl, timeoutMs, retries: { tries: 2, firstWaitMs: 1 } });
  return (await client.payments.get("pay_1")).id;
}

const actions = { sell, verify, fail };

export default {
  async fetch(request) {
    const { action, ...input } = await request.json();
    try {
      return Response.json(await actions[action](input));
    } catch (error) {
      return Response.json({ error: error.name, message: error.message });
    }
  },
};
