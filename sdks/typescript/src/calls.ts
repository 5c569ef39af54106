/** A request of the merchant's API as a description; nothing is sent here. */

import { UnreadableAnswerError } from "./errors.js";
import type { Page } from "./models.js";

/** What a caller may say of any request. */
export interface RequestOptions {
  /** Ends the request, and all further tries of it. */
  signal?: AbortSignal;
}

/** The same, where an idempotency key makes a second request harmless. */
export interface KeyedOptions extends RequestOptions {
  /**
   * Without one a new key is made, which protects the tries of this call only: name one that belongs
   * to the order, so that a second call after a crash finds the same payment.
   */
  idempotencyKey?: string;
}

/** One request, and how to read its answer. */
export interface Call<T> {
  method: "GET" | "POST";
  path: string;
  read: (answer: Record<string, unknown>) => T;
  body?: string;
  /** The idempotency key, the same one for every try. */
  key?: string;
  /** How long the service may take on purpose. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

type Query = Record<string, string | number | Date | readonly string[] | undefined>;

/** Describes a request that only reads. */
export function get<T>(path: string, query: object = {}, options: RequestOptions = {}): Call<T> {
  return { method: "GET", path: path + written(query as Query), read: as<T>, signal: options.signal };
}

/** Describes a request for a page of a list. */
export function list<T>(path: string, query: object, options: RequestOptions = {}): Call<Page<T>> {
  return { ...get<Page<T>>(path, query, options), read: page<T> };
}

/** Describes a request that changes something; one that is `keyed` may be sent again. */
export function post<T>(
  path: string,
  body: object | undefined,
  options: KeyedOptions = {},
  keyed = true,
): Call<T> {
  return {
    method: "POST",
    path,
    read: as<T>,
    signal: options.signal,
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(keyed && { key: options.idempotencyKey ?? crypto.randomUUID() }),
  };
}

/** Writes an id as a part of a path. */
export function part(id: string): string {
  if (!id) throw new TypeError("an id is empty");
  return encodeURIComponent(id);
}

/** Refuses what is no text: a number is not exact. */
export function checkAmount(amount: unknown): void {
  if (amount !== undefined && typeof amount !== "string") {
    throw new TypeError("an amount is a text, such as \"1590.00\": a number is not exact");
  }
}

function as<T>(answer: Record<string, unknown>): T {
  return answer as T;
}

function page<T>(answer: Record<string, unknown>): Page<T> {
  if (!Array.isArray(answer["data"])) throw new UnreadableAnswerError("no list: there is no data");
  return answer as unknown as Page<T>;
}

function written(query: Query): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) given.set(name, value instanceof Date ? value.toISOString() : String(value));
  }
  const text = given.toString(); // `size` is newer
  return text && `?${text}`;
}
