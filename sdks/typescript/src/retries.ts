/** Retry rules: a request is retried only if a second request is harmless. */

import type { Call } from "./calls.js";
import { hideKeys } from "./credentials.js";
import { NoAnswerError, UnreadableAnswerError, apiError } from "./errors.js";
import type { Refusal } from "./errors.js";

const RATE_LIMITED = 429;
const BUSY = 409; // with Retry-After: a concurrent request with this key, or for this payment, is in progress
const UNAVAILABLE = new Set([502, 503]);
const EXCERPT_CHARS = 200;
/** Error codes of failed connection attempts; the request was not sent. */
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "ConnectionRefused", // in Bun
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT",
]);
/** Codes of connection errors. Other error messages, such as those of parsers, may repeat a header. */
const CONNECTION_CODE = /^(E[A-Z_]+|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT|UND_ERR_SOCKET)$/;

/** Number of attempts, and delays between them. */
export interface RetryPolicy {
  tries: number;
  /** Doubled with each attempt, then reduced by a random jitter of up to 50 %. */
  firstWaitMs: number;
  waitMaxMs: number;
  /** No attempt starts later than this after the first. */
  totalMs: number;
}

export const RETRIES: RetryPolicy = {
  tries: 4,
  firstWaitMs: 250,
  waitMaxMs: 8_000,
  totalMs: 60_000,
};

/** Returns the delay before the next attempt, or null if there is none. */
export function waitMs(
  policy: RetryPolicy,
  attempt: number,
  elapsedMs: number,
  retryAfterS?: number,
): number | null {
  if (attempt >= policy.tries) return null;
  const backoff = Math.min(policy.waitMaxMs, policy.firstWaitMs * 2 ** (attempt - 1));
  const wait = Math.max(backoff * (0.5 + Math.random() / 2), (retryAfterS ?? 0) * 1_000);
  return elapsedMs + wait <= policy.totalMs ? wait : null;
}

/** Returns whether a call may be sent again if it is unknown whether it arrived. */
function canRepeat(call: Call<unknown>): boolean {
  return call.method === "GET" || call.key !== undefined;
}

/** Returns whether the request may be sent again after this response. */
export function mayRetryAnswer(call: Call<unknown>, answer: Response): boolean {
  if (answer.status === RATE_LIMITED) return true; // the service did not process it
  if (answer.status === BUSY) return canRepeat(call) && answer.headers.has("retry-after");
  return UNAVAILABLE.has(answer.status) && canRepeat(call);
}

/** Returns whether a request without a response may be sent again. */
export function mayRetryError(call: Call<unknown>, error: unknown): boolean {
  return canRepeat(call) || NOT_SENT.has(readCode(error));
}

/** The response has the id of a different request. */
export class AnswerMismatchError extends Error {}

/** Throws if the response belongs to a different request. A proxy's response may not have an id. */
export function checkRequestId(requestId: string, answer: Response): void {
  const responseId = answer.headers.get("x-request-id");
  if (responseId !== null && responseId !== requestId) throw new AnswerMismatchError();
}

/** Returns the error for a failed request. Its message does not contain headers. */
export function createNoAnswerError(attempt: number, error: unknown): NoAnswerError {
  const code = readCode(error);
  const name = String((error as { name?: unknown } | undefined)?.name);
  const isMismatch = error instanceof AnswerMismatchError;
  const reason = isMismatch ? "the response belongs to a different request" : code || name;
  const options = CONNECTION_CODE.test(code) ? { cause: error } : {};
  return new NoAnswerError(`no response to attempt ${attempt}: ${reason}`, options);
}

function readCode(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown };
  const value = cause?.code ?? code;
  return typeof value === "string" ? value : "";
}

/** Returns the value of Retry-After in seconds, if it is set. */
export function retryAfterS(headers: Headers): number | undefined {
  const value = headers.get("retry-after") ?? "";
  return /^[0-9]+$/.test(value) ? Number(value) : undefined;
}

/** Decodes a response. Throws an `ApiError` if it is an error. */
export function readAnswer<T>(call: Call<T>, answer: Response, body: string): T {
  const data = parseJson(body);
  if (answer.ok && isObject(data)) return call.read(data);
  const code = isObject(data) ? data["code"] : undefined;
  if (answer.ok || typeof code !== "string") {
    const start = JSON.stringify(hideKeys(body).slice(0, EXCERPT_CHARS));
    throw new UnreadableAnswerError(`the response (HTTP ${answer.status}) is not from the service: ${start}`);
  }
  const message = String((data as Record<string, unknown>)["message"] ?? "");
  throw apiError(toRefusal(answer, code, hideKeys(message)));
}

function toRefusal(answer: Response, code: string, message: string): Refusal {
  const requestId = answer.headers.get("x-request-id");
  const seconds = retryAfterS(answer.headers);
  return {
    status: answer.status,
    code,
    message,
    ...(requestId !== null && { requestId }),
    ...(seconds !== undefined && { retryAfterS: seconds }),
  };
}

function parseJson(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** Returns whether a value is a JSON object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
