/** Helpers for a merchant's tests: a test merchant, and a receiver of its webhooks. */

import { createServer } from "node:http";

import { Client } from "./client.js";
import { readWebhookSecret } from "./credentials.js";
import { WebhookError } from "./errors.js";
import type { Event, EventType, VerifiedEvent } from "./events.js";
import type { AdvancedTestClock, CreatedPayment, Payment } from "./models.js";
import type { CreatePayment, DeclineTestPayment, DisputeTestPayment, PayTestPayment } from "./parameters.js";
import { verify } from "./webhooks.js";

const WAIT_S = 30;
const LISTED_MAX = 20;

/** A payment, or any object with a payment's id. */
export interface HasId {
  readonly id: string;
}

/** A test merchant: its payments, with actions of buyers and banks, and its clock. */
export class TestSide {
  readonly client: Client;

  /** Default client: uses `PAYINTENT_URL` and the test key `PAYINTENT_API_KEY`. */
  constructor(client?: Client) {
    this.client = client ?? createClient();
  }

  /** Creates a payment. Default: 10.00 USD. */
  createPayment(fields: Partial<CreatePayment> = {}): Promise<CreatedPayment> {
    return this.client.payments.create({
      amount: "10.00",
      currency: "USD",
      payer_uid: "buyer-1",
      ...fields,
    });
  }

  /** Pays with a test card, which determines the outcome. */
  pay(payment: HasId, card?: PayTestPayment["card"]): Promise<Payment> {
    return this.client.testPayments.pay(payment.id, card === undefined ? {} : { card });
  }

  /** Declines the buyer's card, for example with `insufficient_funds`. */
  decline(payment: HasId, code?: DeclineTestPayment["code"]): Promise<Payment> {
    return this.client.testPayments.decline(payment.id, code === undefined ? {} : { code });
  }

  /** Disputes the payment as the buyer's bank: `open`, then `won` or `lost`. */
  dispute(payment: HasId, state?: DisputeTestPayment["state"]): Promise<Payment> {
    return this.client.testPayments.dispute(payment.id, state === undefined ? {} : { state });
  }

  /** Advances the clock. Work that becomes due runs shortly afterwards. */
  advance(seconds: number): Promise<AdvancedTestClock> {
    return this.client.testClock.advance(seconds);
  }
}

/** Headers from Node.js, with names in lower case. */
type NodeHeaders = Record<string, string | string[] | undefined>;

/** A verified webhook. `id` is its `webhook-id`. */
export interface ReceivedWebhook {
  readonly id: string;
  readonly event: Event;
}

export interface ReceiverOptions {
  /** One or more callback secrets of the test merchant. Default: `PAYINTENT_WEBHOOK_SECRET`. */
  secrets?: string | readonly string[];
  /** 0 selects a free port. Default: `PAYINTENT_WEBHOOK_PORT`, or 0. */
  port?: number;
}

/** A loopback server that stores each verified webhook once. */
export class WebhookReceiver {
  readonly #secrets: readonly string[];
  readonly #server = createServer((request, response) => {
    read(request).then((body) => this.#receive(body, request.headers)).then(
      (status) => response.writeHead(status, { "Content-Length": "0" }).end(),
      () => response.writeHead(500, { "Content-Length": "0" }).end(),
    );
  });
  readonly #received = new Map<string, ReceivedWebhook>();
  readonly #refused: string[] = [];
  readonly #waiters = new Set<() => void>();

  private constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
    secrets.forEach(readWebhookSecret); // reject invalid secrets before the first webhook
  }

  /** Starts a receiver. Call `close` after the tests. */
  static async start({ secrets, port }: ReceiverOptions = {}): Promise<WebhookReceiver> {
    const value = secrets ?? setting("PAYINTENT_WEBHOOK_SECRET").split(/\s+/);
    const receiver = new WebhookReceiver(typeof value === "string" ? [value] : value);
    const listenPort = port ?? Number(process.env["PAYINTENT_WEBHOOK_PORT"] ?? 0);
    await new Promise<void>((resolve, reject) => {
      receiver.#server.once("error", reject).listen(listenPort, "127.0.0.1", resolve);
    });
    return receiver;
  }

  /** The receiver's URL. Any path works. */
  get url(): string {
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  /** Received webhooks in order of arrival. */
  get received(): ReceivedWebhook[] {
    return [...this.#received.values()];
  }

  /** Reasons for rejected webhooks. */
  get refused(): string[] {
    return [...this.#refused];
  }

  /**
   * Returns the first event of a type for a payment, and waits until it arrives. Throws after
   * `timeoutS` seconds; the error lists the received events.
   */
  async wait<T extends EventType>(
    type: T,
    payment?: HasId,
    timeoutS = WAIT_S,
  ): Promise<Extract<Event, { type: T }>> {
    const find = () => this.received.find(({ event }) => event.type === type && isOf(event, payment));
    const webhook = find() ?? (await this.#waitFor(find, timeoutS));
    if (!webhook) throw new Error(this.#explain(type, payment, timeoutS));
    return webhook.event as Extract<Event, { type: T }>;
  }

  /** Stops the server. */
  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(resolve);
      this.#server.closeAllConnections();
    });
  }

  #waitFor<T>(find: () => T | undefined, timeoutS: number): Promise<T | undefined> {
    return new Promise((resolve) => {
      const end = (result?: T) => {
        clearTimeout(timer);
        this.#waiters.delete(check);
        resolve(result);
      };
      const check = () => {
        const result = find();
        if (result !== undefined) end(result);
      };
      const timer = setTimeout(end, timeoutS * 1_000);
      this.#waiters.add(check);
    });
  }

  async #receive(body: Uint8Array, headers: NodeHeaders): Promise<number> {
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
    for (const check of [...this.#waiters]) check();
    return 204;
  }

  #explain(type: EventType, payment: HasId | undefined, timeoutS: number): string {
    const events = this.received.map(({ event }) => `${event.type} for ${paymentId(event)}`);
    return (
      `no ${type}${payment ? ` for ${payment.id}` : ""} within ${timeoutS} s at ${this.url}; ` +
      `received: ${JSON.stringify(events.slice(-LISTED_MAX))}; ` +
      `rejected: ${JSON.stringify(this.#refused.slice(-LISTED_MAX))}`
    );
  }
}

function createClient(): Client {
  const apiKey = setting("PAYINTENT_API_KEY", "PAYINTENT_KEY");
  if (!apiKey.startsWith("sk_test_")) {
    throw new Error("PAYINTENT_API_KEY is not a test key (sk_test_…); tests may use only test keys");
  }
  return new Client({ apiKey, baseUrl: setting("PAYINTENT_URL", "PAYINTENT_API_BASE_URL") });
}

/** Reads an environment variable, under its current name or the name in earlier releases. */
function setting(name: string, olderName = name): string {
  const value = process.env[name]?.trim() || process.env[olderName]?.trim();
  if (!value) throw new Error(`set ${name}`);
  return value;
}

function isOf(event: Event, payment: HasId | undefined): boolean {
  return payment === undefined || paymentId(event) === payment.id;
}

/** An event of an unknown type may not have a payment. */
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
  let offset = 0;
  for (const part of parts) {
    body.set(part, offset);
    offset += part.length;
  }
  return body;
}
