/** Verifies webhooks: a valid webhook is signed (Standard Webhooks 1.0) and recent. */

import { decodeBase64, readWebhookSecret } from "./credentials.js";
import {
  WebhookBodyError,
  WebhookHeaderError,
  WebhookSignatureError,
  WebhookTimeError,
} from "./errors.js";
import type { Event, VerifiedEvent } from "./events.js";
import { isObject } from "./retries.js";

/** The maximum difference between a webhook's timestamp and the current time. */
export const TOLERANCE_S = 300;
const HMAC = { name: "HMAC", hash: "SHA-256" };
const KINDS = new Set(["payment.completed", "payment.failed", "payment.expired", "payment.cancelled"]);

/** Headers in the formats of common frameworks. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

export interface VerifyOptions {
  toleranceS?: number;
  /** The current Unix time in seconds, for tests. */
  nowS?: number;
}

/**
 * Verifies a webhook and returns its event. Throws a `WebhookError` if it is invalid.
 *
 * `body` must be the raw bytes of the request, not JSON that was parsed and encoded again. `secrets`
 * is the callback secret, or both secrets during a rotation. An event can arrive more than once with
 * the same `id`: handle it once. Events of unknown types are returned unchanged: respond with 2xx
 * and ignore them.
 */
export async function verify(
  body: Uint8Array | ArrayBuffer | string,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  { toleranceS = TOLERANCE_S, nowS = Date.now() / 1_000 }: VerifyOptions = {},
): Promise<VerifiedEvent> {
  const keys = (typeof secrets === "string" ? [secrets] : secrets).map(readWebhookSecret);
  const id = readHeader(headers, "webhook-id");
  const timestamp = readHeader(headers, "webhook-timestamp");
  const signatures = readHeader(headers, "webhook-signature");
  // The headers come first, because Express does not set the body of an empty request from a stranger.
  const content = toBytes(body);
  if (!/^[0-9]{1,12}$/.test(timestamp)) {
    throw new WebhookHeaderError("webhook-timestamp is not a number of seconds");
  }
  const signedContent = concatenate(new TextEncoder().encode(`${id}.${timestamp}.`), content);
  if (!(await isSigned(signedContent, signatures, keys))) {
    throw new WebhookSignatureError("no signature matches any of the secrets");
  }
  if (Math.abs(nowS - Number(timestamp)) > toleranceS) {
    throw new WebhookTimeError("webhook-timestamp differs too much from the current time");
  }
  return { ...parseEvent(content), id };
}

function toBytes(body: unknown): Uint8Array<ArrayBuffer> {
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (body instanceof Uint8Array) return new Uint8Array(body);
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  throw new TypeError("the body must be the raw bytes of the request");
}

function readHeader(headers: WebhookHeaders, name: string): string {
  const value = isHeaders(headers) ? headers.get(name) : plainHeader(headers, name);
  if (!value) throw new WebhookHeaderError(`${name} is missing`);
  return value;
}

/** Returns whether this is a `Headers` object, which may be of a library's own class. */
function isHeaders(headers: WebhookHeaders): headers is Headers {
  return typeof headers.get === "function";
}

function plainHeader(headers: Record<string, string | string[] | undefined>, name: string) {
  const [, value] = Object.entries(headers).find(([key]) => key.toLowerCase() === name) ?? [];
  return Array.isArray(value) ? value.join(", ") : value;
}

function concatenate(start: Uint8Array, end: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(start.length + end.length);
  bytes.set(start);
  bytes.set(end, start.length);
  return bytes;
}

async function isSigned(
  content: Uint8Array<ArrayBuffer>,
  signatures: string,
  keys: readonly Uint8Array<ArrayBuffer>[],
): Promise<boolean> {
  const candidates = signatures
    .split(" ")
    .filter((item) => item.startsWith("v1,"))
    .map((item) => decodeBase64(item.slice("v1,".length)));
  let isValid = false;
  for (const bytes of keys) {
    const key = await crypto.subtle.importKey("raw", bytes, HMAC, false, ["verify"]);
    for (const signature of candidates) {
      // Compare every pair in constant time, so that the duration does not reveal the matching
      // pair.
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, content))) isValid = true;
    }
  }
  return isValid;
}

function parseEvent(body: Uint8Array): Event {
  let event: unknown;
  try {
    event = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (error) {
    throw new WebhookBodyError("the body is not JSON", { cause: error });
  }
  if (!isObject(event) || typeof event["type"] !== "string" || !isObject(event["data"])) {
    throw new WebhookBodyError("the body is not an event");
  }
  if (KINDS.has(event["type"]) && !isObject(event["data"]["payment"])) {
    throw new WebhookBodyError("the event does not contain a payment");
  }
  return event as unknown as Event;
}
