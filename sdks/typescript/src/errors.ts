/** The errors of this library. Each is a `PayintentError`. */

import type { FraudDecision } from "./models.js";

export class PayintentError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * In every attempt, the service was unreachable or did not respond in time.
 *
 * It may have processed the request: send it again with the same idempotency key.
 */
export class NoAnswerError extends PayintentError {}

/** The response is not from the service; it may be a proxy's error page. */
export class UnreadableAnswerError extends PayintentError {}

/** The fraud rules denied the payment. Nothing was created, but the idempotency key was used. */
export class PaymentDeniedError extends PayintentError {
  constructor(readonly decision: FraudDecision) {
    super(`${decision.code}: ${decision.message}`);
  }
}

/** Details of an error response. */
export interface Refusal {
  status: number;
  code: string;
  message: string;
  requestId?: string;
  retryAfterS?: number;
}

/** The service rejected a request. `code` may be newer than this release. */
export class ApiError extends PayintentError {
  readonly status: number;
  readonly code: string;
  /** The request id. Include it when you contact the operator. */
  readonly requestId: string | undefined;
  /** Seconds until a retry, if the service sent `Retry-After`. */
  readonly retryAfterS: number | undefined;

  constructor(refusal: Refusal) {
    super(`${refusal.status} ${refusal.code}: ${refusal.message}`);
    this.status = refusal.status;
    this.code = refusal.code;
    this.requestId = refusal.requestId;
    this.retryAfterS = refusal.retryAfterS;
  }
}

/** The request is malformed (400, 413, 415). */
export class BadRequestError extends ApiError {}
/** The amount is invalid for its currency, or cannot be paid. */
export class InvalidAmountError extends ApiError {}
/** The merchant cannot be paid in this currency or country. */
export class UnsupportedError extends ApiError {}
/** The key is missing or invalid (401). */
export class AuthenticationError extends ApiError {}
/** The key has no access: the payment belongs to a different merchant or mode (403). */
export class ForbiddenError extends ApiError {}
/** The payment, refund or event does not exist (404). */
export class NotFoundError extends ApiError {}
/** The payment's state does not allow the request, or another request is in progress (409). */
export class ConflictError extends ApiError {}
/** The idempotency key was used with a different body. */
export class IdempotencyConflictError extends ConflictError {}
/** The payment's state does not allow the request. */
export class InvalidStateError extends ConflictError {}
/** The refund exceeds the remaining amount. */
export class RefundExceedsRemainingError extends ApiError {}
/** The request is well-formed but cannot be fulfilled (422). */
export class UnprocessableError extends ApiError {}
/** The rate limit was exceeded in all attempts (429). */
export class RateLimitedError extends ApiError {}
/** The service failed or was unavailable in all attempts (5xx). */
export class ServiceError extends ApiError {}

/** A webhook is invalid. Respond with 401 and ignore it. */
export class WebhookError extends PayintentError {}
/** A required header is missing or malformed. */
export class WebhookHeaderError extends WebhookError {}
/** The timestamp is too old or in the future. The request may be a replay attack. */
export class WebhookTimeError extends WebhookError {}
/** No signature matches any of the secrets. */
export class WebhookSignatureError extends WebhookError {}
/** The signature is valid, but the body is not an event. */
export class WebhookBodyError extends WebhookError {}

type ApiErrorClass = new (refusal: Refusal) => ApiError;

const BY_CODE = new Map<string, ApiErrorClass>([
  ["INVALID_AMOUNT", InvalidAmountError],
  ["INVALID_CURRENCY", UnsupportedError],
  ["UNSUPPORTED_CURRENCY", UnsupportedError],
  ["UNSUPPORTED_COUNTRY", UnsupportedError],
  ["IDEMPOTENCY_CONFLICT", IdempotencyConflictError],
  ["INVALID_PAYMENT_STATE", InvalidStateError],
  ["INVALID_CHECKOUT_STATE", InvalidStateError],
  ["INVALID_TRANSITION", InvalidStateError],
  ["REFUND_EXCEEDS_REMAINING", RefundExceedsRemainingError],
]);
const BY_STATUS = new Map<number, ApiErrorClass>([
  [400, BadRequestError],
  [401, AuthenticationError],
  [403, ForbiddenError],
  [404, NotFoundError],
  [409, ConflictError],
  [413, BadRequestError],
  [415, BadRequestError],
  [422, UnprocessableError],
  [429, RateLimitedError],
]);

/** Creates the error of a response by its code, or by its status if the code is unknown. */
export function apiError(refusal: Refusal): ApiError {
  const fallback = refusal.status >= 500 ? ServiceError : ApiError;
  const errorClass = BY_CODE.get(refusal.code) ?? BY_STATUS.get(refusal.status) ?? fallback;
  return new errorClass(refusal);
}
