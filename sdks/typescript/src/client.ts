/** The client, which contains the resources and sends requests with retries. */

import type { Call } from "./calls.js";
import { readApiKey, readBaseUrl } from "./credentials.js";
import { Cases, CatalogOfMerchant, ClockOfTests, Disputes, Events } from "./resources.js";
import { Onchain, PaymentLinks, Payments, Refunds, Statements, TestPayments } from "./resources.js";
import type { RetryPolicy } from "./retries.js";
import { AnswerMismatchError, RETRIES, checkRequestId, mayRetryAnswer, mayRetryError } from "./retries.js";
import { createNoAnswerError, readAnswer, retryAfterS, waitMs } from "./retries.js";
import { VERSION } from "./version.js";

const TIMEOUT_MS = 10_000;
const USER_AGENT = `payintent-sdk-typescript/${VERSION}`;

export interface ClientOptions {
  /** API key (`sk_…`), as `payintent key issue` prints it. */
  apiKey: string;
  /** URL of the service, such as `https://pay.example.com`. */
  baseUrl: string;
  /** The limit for each attempt, from connecting to the end of the response. */
  timeoutMs?: number;
  retries?: Partial<RetryPolicy>;
}

/** A client of the service. A process needs only one client. */
export class Client {
  readonly payments = new Payments(this);
  readonly refunds = new Refunds(this);
  readonly paymentLinks = new PaymentLinks(this);
  readonly events = new Events(this);
  readonly cases = new Cases(this);
  readonly disputes = new Disputes(this);
  readonly statements = new Statements(this);
  readonly catalog = new CatalogOfMerchant(this);
  readonly onchain = new Onchain(this);
  readonly testClock = new ClockOfTests(this);
  readonly testPayments = new TestPayments(this);
  readonly #baseUrl: string;
  readonly #apiKey: string;
  readonly #timeoutMs: number;
  readonly #retries: RetryPolicy;

  constructor({ apiKey, baseUrl, timeoutMs = TIMEOUT_MS, retries = {} }: ClientOptions) {
    if (typeof document !== "undefined") {
      throw new Error("payintent-sdk is for servers: an API key must never be in a web page");
    }
    this.#baseUrl = readBaseUrl(baseUrl);
    this.#apiKey = readApiKey(apiKey);
    this.#timeoutMs = timeoutMs;
    this.#retries = { ...RETRIES, ...retries };
  }

  /** Sends a call, retries it if this is safe, and returns the decoded response. */
  async send<T>(call: Call<T>): Promise<T> {
    const startedAt = performance.now();
    for (let attempt = 1; ; attempt += 1) {
      const getElapsedMs = () => performance.now() - startedAt;
      const { answer, body, error } = await this.#exchange(call);
      const mayRetry = answer ? mayRetryAnswer(call, answer) : mayRetryError(call, error);
      const retryAfter = answer && retryAfterS(answer.headers);
      const wait = mayRetry ? waitMs(this.#retries, attempt, getElapsedMs(), retryAfter) : null;
      if (wait === null) {
        if (answer) return readAnswer(call, answer, body);
        throw createNoAnswerError(attempt, error);
      }
      await pause(wait, call.signal);
    }
  }

  /** Sends a request and reads its response. Returns failures, but throws if the caller has aborted the call. */
  async #exchange(call: Call<unknown>): Promise<Exchange> {
    const controller = new AbortController();
    const stop = () => controller.abort(call.signal?.reason);
    const onTimeout = () => controller.abort(new DOMException("the response did not arrive in time", "TimeoutError"));
    const timer = setTimeout(onTimeout, this.#timeoutMs + (call.waitMs ?? 0));
    call.signal?.addEventListener("abort", stop, { once: true });
    if (call.signal?.aborted) stop();
    try {
      const requestId = crypto.randomUUID();
      const answer = await this.#fetch(call, requestId, controller.signal);
      checkRequestId(requestId, answer);
      return { answer, body: await answer.text() };
    } catch (error) {
      if (call.signal?.aborted) throw error;
      if (error instanceof AnswerMismatchError) controller.abort(); // its body is not read
      return { body: "", error };
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", stop);
    }
  }

  #fetch(call: Call<unknown>, requestId: string, signal: AbortSignal): Promise<Response> {
    return fetch(this.#baseUrl + call.path, {
      method: call.method,
      redirect: "manual", // never send the key to a different host
      signal,
      headers: {
        Authorization: `Bearer ${this.#apiKey}`,
        "User-Agent": USER_AGENT,
        "X-Request-Id": requestId,
        ...(call.key !== undefined && { "Idempotency-Key": call.key }),
        ...(call.body !== undefined && { "Content-Type": "application/json" }),
      },
      ...(call.body !== undefined && { body: call.body }),
    });
  }
}

/** The outcome of a request: a response with its complete body, or an error. */
interface Exchange {
  answer?: Response;
  body: string;
  error?: unknown;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(finish, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    function finish() {
      signal?.removeEventListener("abort", stop);
      resolve();
    }
    signal?.addEventListener("abort", stop, { once: true });
  });
}
