/** The client: its resources, and how it sends their calls. */

import type { Call } from "./calls.js";
import { NoAnswerError } from "./errors.js";
import { Cases, CatalogOfMerchant, ClockOfTests, Disputes, Events } from "./resources.js";
import { Payments, Refunds, Statements, TestPayments } from "./resources.js";
import type { RetryPolicy } from "./retries.js";
import { RETRIES, mayRetryAnswer, mayRetryError, readAnswer, retryAfterS, waitMs } from "./retries.js";

const TIMEOUT_MS = 10_000;
const USER_AGENT = "payintent-sdk-typescript/0.1";

export interface ClientOptions {
  /** What `payintent key issue` shows: `sk_…`. */
  apiKey: string;
  /** Where the service is, such as `https://pay.example.com`. */
  baseUrl: string;
  /** For each try: to connect, to send, and to wait for the whole answer. */
  timeoutMs?: number;
  retries?: Partial<RetryPolicy>;
}

/** A client of the service; one is enough for a process. */
export class Client {
  readonly payments = new Payments(this);
  readonly refunds = new Refunds(this);
  readonly events = new Events(this);
  readonly cases = new Cases(this);
  readonly disputes = new Disputes(this);
  readonly statements = new Statements(this);
  readonly catalog = new CatalogOfMerchant(this);
  readonly testClock = new ClockOfTests(this);
  readonly testPayments = new TestPayments(this);
  readonly #baseUrl: string;
  readonly #apiKey: string;
  readonly #timeoutMs: number;
  readonly #retries: RetryPolicy;

  constructor({ apiKey, baseUrl, timeoutMs = TIMEOUT_MS, retries = {} }: ClientOptions) {
    if (typeof document !== "undefined") {
      throw new Error("payintent-sdk is for servers: an API key must never be in a page");
    }
    if (!apiKey.startsWith("sk_")) throw new TypeError("an API key begins with sk_");
    this.#baseUrl = baseUrl.replace(/\/$/, "");
    this.#apiKey = apiKey;
    this.#timeoutMs = timeoutMs;
    this.#retries = { ...RETRIES, ...retries };
  }

  /** Sends a call, as often as it takes and is safe; gives its answer. */
  async send<T>(call: Call<T>): Promise<T> {
    const began = performance.now();
    for (let tried = 1; ; tried += 1) {
      const passed = () => performance.now() - began;
      let wait: number | null;
      try {
        const answer = await this.#fetch(call);
        const body = await answer.text();
        const after = retryAfterS(answer.headers);
        wait = mayRetryAnswer(call, answer) ? waitMs(this.#retries, tried, passed(), after) : null;
        if (wait === null) return readAnswer(call, answer, body);
      } catch (error) {
        if (!isNoAnswer(error) || call.signal?.aborted) throw error;
        wait = mayRetryError(call, error) ? waitMs(this.#retries, tried, passed()) : null;
        if (wait === null) {
          throw new NoAnswerError(`no answer after ${tried} tries: ${String(error)}`, { cause: error });
        }
      }
      await pause(wait, call.signal);
    }
  }

  #fetch(call: Call<unknown>): Promise<Response> {
    const timeout = AbortSignal.timeout(this.#timeoutMs + (call.waitMs ?? 0));
    return fetch(this.#baseUrl + call.path, {
      method: call.method,
      redirect: "manual", // a key goes nowhere else
      signal: call.signal ? AbortSignal.any([timeout, call.signal]) : timeout,
      headers: {
        Authorization: `Bearer ${this.#apiKey}`,
        "User-Agent": USER_AGENT,
        ...(call.key !== undefined && { "Idempotency-Key": call.key }),
        ...(call.body !== undefined && { "Content-Type": "application/json" }),
      },
      ...(call.body !== undefined && { body: call.body }),
    });
  }
}

/** Tells a request that failed from an answer that was read and is an error. */
function isNoAnswer(error: unknown): boolean {
  const { name } = error as { name?: unknown };
  return error instanceof TypeError || name === "TimeoutError" || name === "AbortError";
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((done, failed) => {
    const timer = setTimeout(ended, ms);
    const stop = () => {
      clearTimeout(timer);
      failed(signal?.reason as Error);
    };
    function ended() {
      signal?.removeEventListener("abort", stop);
      done();
    }
    signal?.addEventListener("abort", stop, { once: true });
  });
}
