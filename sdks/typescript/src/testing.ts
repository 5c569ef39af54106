/** For a merchant's own tests: a test side to play with, and a receiver of its webhooks. */

import { createServer } from "node:http";

import { Client } from "./client.js";
import { readWebhookSecret } from "./credentials.js";
import { WebhookError } from "./errors.js";
import type { Event, EventType, VerifiedEvent } from "./events.js";
import type { AdvancedTestClock, CreatedPayment, Payment } from "./models.js";
import type { CreatePayment, DeclineTestPayment, DisputeTestPayment, PayTestPayment } from "./parameters.js";
import { verify } from "./webhooks.js";

const WAIT_S = 30;
const TOLD_MAX = 20;

/** A payment, or whatever else has its id. */
export interface HasId {
  readonly id: string;
}

/** A merchant's test side: its payments, and what buyers, banks and time do to them. */
export class TestSide {
  readonly client: Client;

  /** Without a client: one of `PAYINTENT_URL` and the test key `PAYINTENT_API_KEY`. */
  constructor(client?: Client) {
    this.client = client ?? clientOfEnvironment();
  }

  /** Creates a payment, of 10.00 USD unless something else is wanted. */
  createPayment(wanted: Partial<CreatePayment> = {}): Promise<CreatedPayment> {
    return this.client.payments.create({
      amount: "10.00",
      currency: "USD",
      payer_uid: "buyer-1",
      ...wanted,
    });
  }

  /** Has the buyer pay with a test card, which decides what happens. */
  pay(payment: HasId, card?: PayTestPayment["card"]): Promise<Payment> {
    return this.client.testPayments.pay(payment.id, card === undefined ? {} : { card });
  }

  /** Has the buyer's card declined, such as with `insufficient_funds`. */
  decline(payment: HasId, code?: DeclineTestPayment["code"]): Promise<Payment> {
    return this.client.testPayments.decline(payment.id, code === undefined ? {} : { code });
  }

  /** Has the buyer's bank dispute what was paid: `open`, then `won` or `lost`. */
  dispute(payment: HasId, state?: DisputeTestPayment["state"]): Promise<Payment> {
    return this.client.testPayments.dispute(payment.id, state === undefined ? {} : { state });
  }

  /** Moves the clock on: what becomes due happens within a moment. */
  advance(seconds: number): Promise<AdvancedTestClock> {
    return this.client.testClock.advance(seconds);
  }
}

/** Headers as Node.js gives them: names are in lower case. */
type NodeHeaders = Record<string, string | string[] | undefined>;

/** A webhook that is to be believed; `id` is its `webhook-id`. */
export interface ReceivedWebhook {
  readonly id: string;
  readonly event: Event;
}

export interface ReceiverOptions {
  /** The test side's callback secret, or several; without it, `PAYINTENT_WEBHOOK_SECRET`. */
  secrets?: string | readonly string[];
  /** 0 is any port that is free; without it, `PAYINTENT_WEBHOOK_PORT`, or 0. */
  port?: number;
}

/** A small server on loopback that keeps the webhooks it believes, each once. */
export class WebhookReceiver {
  readonly #secrets: readonly string[];
  readonly #server = createServer((request, response) => {
    read(request).then((body) => this.#take(body, request.headers)).then(
      (status) => response.writeHead(status, { "Content-Length": "0" }).end(),
      () => response.writeHead(500, { "Content-Length": "0" }).end(),
    );
  });
  readonly #received = new Map<string, ReceivedWebhook>();
  readonly #refused: string[] = [];
  readonly #waiting = new Set<() => void>();

  private constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
    secrets.forEach(readWebhookSecret); // refused now, not with the first webhook
  }

  /** Starts a receiver; `close` it after the tests. */
  static async start({ secrets, port }: ReceiverOptions = {}): Promise<WebhookReceiver> {
    const given = secrets ?? setting("PAYINTENT_WEBHOOK_SECRET").split(/\s+/);
    const receiver = new WebhookReceiver(typeof given === "string" ? [given] : given);
    const chosen = port ?? Number(process.env["PAYINTENT_WEBHOOK_PORT"] ?? 0);
    await new Promise<void>((done, failed) => {
      receiver.#server.once("error", failed).listen(chosen, "127.0.0.1", done);
    });
    return receiver;
  }

  /** Where webhooks are taken; any path of it will do. */
  get url(): string {
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  /** What came so far, in the order in which it came. */
  get received(): ReceivedWebhook[] {
    return [...this.#received.values()];
  }

  /** Why others were not believed. */
  get refused(): string[] {
    return [...this.#refused];
  }

  /**
   * Gives the first event of a type, of a payment; waits for it where it did not come yet. Throws
   * after `timeoutS` seconds, with what came instead.
   */
  async wait<T extends EventType>(
    type: T,
    payment?: HasId,
    timeoutS = WAIT_S,
  ): Promise<Extract<Event, { type: T }>> {
    const find = () => this.received.find(({ event }) => event.type === type && isOf(event, payment));
    const found = find() ?? (await this.#next(find, timeoutS));
    if (!found) throw new Error(this.#explain(type, payment, timeoutS));
    return found.event as Extract<Event, { type: T }>;
  }

  /** Takes no more. */
  async close(): Promise<void> {
    await new Promise<void>((done) => {
      this.#server.close(done);
      this.#server.closeAllConnections();
    });
  }

  #next<T>(find: () => T | undefined, timeoutS: number): Promise<T | undefined> {
    return new Promise((done) => {
      const end = (found?: T) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        done(found);
      };
      const look = () => {
        const found = find();
        if (found !== undefined) end(found);
      };
      const timer = setTimeout(end, timeoutS * 1_000);
      this.#waiting.add(look);
    });
  }

  async #take(body: Uint8Array, headers: NodeHeaders): Promise<number> {
    let event: VerifiedEvent;
    try {
      event = await verify(body, headers, this.#secrets);
    } catch (error) {
      if (!(error instanceof WebhookError)) throw error;
      this.#refused.push(error.message);
      return 400;
    }
    const { id } = event;
    if (!this.#received.has(id)) this.#received.set(id, { id, event });
    for (const look of [...this.#waiting]) look();
    return 204;
  }

  #explain(type: EventType, payment: HasId | undefined, timeoutS: number): string {
    const came = this.received.map(({ event }) => `${event.type} of ${paymentId(event)}`);
    return (
      `no ${type}${payment ? ` of ${payment.id}` : ""} within ${timeoutS} s at ${this.url}; ` +
      `came: ${JSON.stringify(came.slice(-TOLD_MAX))}; ` +
      `not believed: ${JSON.stringify(this.#refused.slice(-TOLD_MAX))}`
    );
  }
}

function clientOfEnvironment(): Client {
  const apiKey = setting("PAYINTENT_API_KEY", "PAYINTENT_KEY");
  if (!apiKey.startsWith("sk_test_")) {
    throw new Error("PAYINTENT_API_KEY is not a test key (sk_test_…); tests may use only test keys");
  }
  return new Client({ apiKey, baseUrl: setting("PAYINTENT_URL", "PAYINTENT_API_BASE_URL") });
}

/** Reads a variable, or its name in earlier releases. */
function setting(name: string, olderName = name): string {
  const value = process.env[name]?.trim() || process.env[olderName]?.trim();
  if (!value) throw new Error(`set ${name}`);
  return value;
}

function isOf(event: Event, payment: HasId | undefined): boolean {
  return payment === undefined || paymentId(event) === payment.id;
}

/** An event of a kind that this release does not know may be about something else. */
function paymentId(event: Event): string | undefined {
  return (event.data as { payment?: HasId }).payment?.id;
}

async function read(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    length += chunk.length;
    parts.push(chunk);
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return body;
}
