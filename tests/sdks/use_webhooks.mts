// Verifies webhooks in JSON from standard input; prints the results.

import { PayintentError, webhooks } from "payintent-sdk";

declare const process: { stdin: AsyncIterable<Uint8Array> };

interface Case {
  body: string;
  headers: Record<string, string>;
  secrets: string[];
  now: number;
}

let text = "";
for await (const chunk of process.stdin) text += new TextDecoder().decode(chunk);
for (const { body, headers, secrets, now } of JSON.parse(text) as Case[]) {
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  try {
    const event = await webhooks.verify(bytes, headers, secrets, { nowS: now });
    console.log(`${event.type}/${event.id}`);
    const ofRuntime = new Headers(headers);
    const ofLibrary = { get: (name: string) => ofRuntime.get(name) } as Headers; // such as node-fetch's class
    for (const each of [ofRuntime, ofLibrary]) await webhooks.verify(bytes.buffer, each, secrets, { nowS: now });
  } catch (error) {
    if (!(error instanceof PayintentError || error instanceof TypeError)) throw error;
    console.log(error instanceof PayintentError ? error.name : "misused");
  }
}
