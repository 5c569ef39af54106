/** Descriptions of API requests; the client sends them. */

import { UnreadableAnswerError } from "./errors.js";
import type { Page } from "./models.js";

/** Options of every request. */
export interface RequestOptions {
  /** Aborts the request and its retries. */
  signal?: AbortSignal;
}

/** Options of a request with an idempotency key, which makes it safe to repeat the request. */
export interface KeyedOptions extends RequestOptions {
  /**
   * Default: a new key, which protects only the retries of this call. Store a key with the order, so
   * that a second call after a crash returns the same payment.
   */
  idempotencyKey?: string;
}

/** A request, and how to decode its response. */
export interface Call<T> {
  method: "GET" | "POST";
  path: string;
  read: (answer: Record<string, unknown>) => T;
  body?: string;
  /** The idempotency key, which is the same in every attempt. */
  key?: string;
  /** The duration of a long poll, in addition to the timeout. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

const KEY = /^[!-~]+$/; // the service checks that it is a UUID

type Query = Record<string, string | number | Date | readonly string[] | undefined>;

/** Describes a GET request. */
export function get<T>(path: string, query: object = {}, options: RequestOptions = {}): Call<T> {
  return { method: "GET", path: path + toQueryString(query as Query), read: cast<T>, signal: options.signal };
}

/** Describes a GET request for a page of a list. */
export function list<T>(path: string, query: object, options: RequestOptions = {}): Call<Page<T>> {
  return { ...get<Page<T>>(path, query, options), read: readPage<T> };
}

/** Describes a POST request. It may be retried if it is `keyed`. */
export function post<T>(
  path: string,
  body: object | undefined,
  options: KeyedOptions = {},
  hasKey = true,
): Call<T> {
  return {
    method: "POST",
    path,
    read: cast<T>,
    signal: options.signal,
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(hasKey && { key: readKey(options.idempotencyKey) }),
  };
}

/** Returns the key, or a new key if there is none. Throws if it cannot be sent. */
function readKey(key: string | null = null): string {
  if (key === null) return crypto.randomUUID();
  if (!KEY.test(key)) throw new TypeError("an idempotency key must be a UUID");
  return key;
}

/** Encodes an id as a path segment. */
export function toPathSegment(id: string): string {
  // They would change the request's path.
  if (!id || id === "." || id === "..") throw new TypeError(`invalid id: ${JSON.stringify(id)}`);
  return encodeURIComponent(id);
}

/** Throws unless the amount is a string: numbers are not exact. */
export function checkAmount(amount: unknown): void {
  if (amount !== undefined && typeof amount !== "string") {
    throw new TypeError("an amount must be a string, because a number is not exact");
  }
}

function cast<T>(answer: Record<string, unknown>): T {
  return answer as T;
}

function readPage<T>(answer: Record<string, unknown>): Page<T> {
  if (!Array.isArray(answer["data"])) {
    throw new UnreadableAnswerError("the response is not a list: `data` is missing");
  }
  return answer as unknown as Page<T>;
}

function toQueryString(query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, value instanceof Date ? value.toISOString() : String(value));
  }
  const text = parameters.toString(); // older runtimes do not have `size`
  return text && `?${text}`;
}
