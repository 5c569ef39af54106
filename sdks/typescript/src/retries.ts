/** Which failures are tried again, and when: only where a second request can do no harm. */

import type { Call } from "./calls.js";
import { hideKeys } from "./credentials.js";
import { NoAnswerError, UnreadableAnswerError, apiError } from "./errors.js";
import type { Refusal } from "./errors.js";

const RATE_LIMITED = 429;
const BUSY = 409; // with Retry-After: another request with this key, or for this payment, is under way
const AWAY = new Set([502, 503]);
const WORD_MAX = 200;
/** What a connection that was never made fails with: nothing was sent. */
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "ConnectionRefused", // in Bun
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT",
]);
/** Errors of connections. The text of others, such as a parser's, may repeat a header. */
const OF_CONNECTION = /^(E[A-Z_]+|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT|UND_ERR_SOCKET)$/;

/** How often and for how long to try. */
export interface RetryPolicy {
  tries: number;
  /** Doubled with each try; half of it is chance. */
  firstWaitMs: number;
  waitMaxMs: number;
  /** No try begins later than this after the first one. */
  totalMs: number;
}

export const RETRIES: RetryPolicy = {
  tries: 4,
  firstWaitMs: 250,
  waitMaxMs: 8_000,
  totalMs: 60_000,
};

/** Gives how long to wait before the next try; null where there is none. */
export function waitMs(
  policy: RetryPolicy,
  tried: number,
  passedMs: number,
  retryAfterS?: number,
): number | null {
  if (tried >= policy.tries) return null;
  const backoff = Math.min(policy.waitMaxMs, policy.firstWaitMs * 2 ** (tried - 1));
  const wait = Math.max(backoff * (0.5 + Math.random() / 2), (retryAfterS ?? 0) * 1_000);
  return passedMs + wait <= policy.totalMs ? wait : null;
}

/** Tells whether it does no harm to send a call again when nobody knows if it arrived. */
function canRepeat(call: Call<unknown>): boolean {
  return call.method === "GET" || call.key !== undefined;
}

/** Tells whether an answer is one after which the same request may be sent again. */
export function mayRetryAnswer(call: Call<unknown>, answer: Response): boolean {
  if (answer.status === RATE_LIMITED) return true; // it was not done
  if (answer.status === BUSY) return canRepeat(call) && answer.headers.has("retry-after");
  return AWAY.has(answer.status) && canRepeat(call);
}

/** Tells whether a request without an answer may be sent again. */
export function mayRetryError(call: Call<unknown>, error: unknown): boolean {
  return canRepeat(call) || NOT_SENT.has(codeOf(error));
}

/** The answer has the request id of another request. */
export class AnswerMismatchError extends Error {}

/** Refuses the answer to another request. A proxy's own answer may have no id. */
export function checkRequestId(requestId: string, answer: Response): void {
  const echoed = answer.headers.get("x-request-id");
  if (echoed !== null && echoed !== requestId) throw new AnswerMismatchError();
}

/** Gives the error of a request that failed; it repeats no header. */
export function noAnswer(tried: number, error: unknown): NoAnswerError {
  const code = codeOf(error);
  const name = String((error as { name?: unknown } | undefined)?.name);
  const reason = error instanceof AnswerMismatchError ? "the answer belongs to another request" : code || name;
  const options = OF_CONNECTION.test(code) ? { cause: error } : {};
  return new NoAnswerError(`no answer after ${tried} tries: ${reason}`, options);
}

function codeOf(error: unknown): string {
  const { cause, code } = error as { cause?: { code?: unknown }; code?: unknown };
  const given = cause?.code ?? code;
  return typeof given === "string" ? given : "";
}

/** Gives the seconds of Retry-After, where there are any. */
export function retryAfterS(headers: Headers): number | undefined {
  const value = headers.get("retry-after") ?? "";
  return /^[0-9]+$/.test(value) ? Number(value) : undefined;
}

/** Gives what an answer says; throws the `ApiError` that it is. */
export function readAnswer<T>(call: Call<T>, answer: Response, body: string): T {
  const decoded = parsed(body);
  if (answer.ok && isObject(decoded)) return call.read(decoded);
  const code = isObject(decoded) ? decoded["code"] : undefined;
  if (answer.ok || typeof code !== "string") {
    const start = JSON.stringify(hideKeys(body).slice(0, WORD_MAX));
    throw new UnreadableAnswerError(`HTTP ${answer.status} that is not the service's: ${start}`);
  }
  const message = String((decoded as Record<string, unknown>)["message"] ?? "");
  throw apiError(refusal(answer, code, hideKeys(message)));
}

function refusal(answer: Response, code: string, message: string): Refusal {
  const requestId = answer.headers.get("x-request-id");
  const after = retryAfterS(answer.headers);
  return {
    status: answer.status,
    code,
    message,
    ...(requestId !== null && { requestId }),
    ...(after !== undefined && { retryAfterS: after }),
  };
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** Tells whether a value is an object of JSON, and no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
