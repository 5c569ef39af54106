/** Every error that this library throws; all of them are a `PayintentError`. */

import type { FraudDecision } from "./models.js";

export class PayintentError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * The service could not be reached, or did not answer in time, as often as it was tried.
 *
 * What was asked for may have been done: ask again with the same idempotency key.
 */
export class NoAnswerError extends PayintentError {}

/** What came is no answer of the service: the page of another server, for example. */
export class UnreadableAnswerError extends PayintentError {}

/** The fraud rules deny this payment: nothing was created, and the key stays used. */
export class PaymentDeniedError extends PayintentError {
  constructor(readonly decision: FraudDecision) {
    super(`${decision.code}: ${decision.message}`);
  }
}

/** What is known of a refusal beside its code. */
export interface Refusal {
  status: number;
  code: string;
  message: string;
  requestId?: string;
  retryAfterS?: number;
}

/** The service refused a request; `code` is its error code, which may be a new one. */
export class ApiError extends PayintentError {
  readonly status: number;
  readonly code: string;
  /** What to name to the service's operator. */
  readonly requestId: string | undefined;
  /** When to come back, where the service said so. */
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
/** The amount is no amount of its currency, or none that can be paid. */
export class InvalidAmountError extends ApiError {}
/** The currency or country is not one in which the merchant can be paid. */
export class UnsupportedError extends ApiError {}
/** There is no key, or not a valid one (401). */
export class AuthenticationError extends ApiError {}
/** The key may not do this: another merchant's payment, or the other mode (403). */
export class ForbiddenError extends ApiError {}
/** There is no such payment, refund or event (404). */
export class NotFoundError extends ApiError {}
/** The payment's state does not allow it, or another request is under way (409). */
export class ConflictError extends ApiError {}
/** The idempotency key was used with another body. */
export class IdempotencyConflictError extends ConflictError {}
/** The payment's state does not allow it. */
export class InvalidStateError extends ConflictError {}
/** More is to be refunded than is left. */
export class RefundExceedsRemainingError extends ApiError {}
/** The request is well formed and cannot be done (422). */
export class UnprocessableError extends ApiError {}
/** Too many requests, as often as it was tried (429). */
export class RateLimitedError extends ApiError {}
/** The service failed, or is away, as often as it was tried (5xx). */
export class ServiceError extends ApiError {}

/** A webhook is not to be believed: answer 400, and do nothing. */
export class WebhookError extends PayintentError {}
/** A header that every webhook carries is missing or malformed. */
export class WebhookHeaderError extends WebhookError {}
/** The webhook is too old, or from the future: somebody may have recorded and repeated it. */
export class WebhookTimeError extends WebhookError {}
/** No signature of it was made with one of the secrets. */
export class WebhookSignatureError extends WebhookError {}
/** It is signed well, and is no event. */
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

/** Makes the error of a refusal: by its code, else by its status. */
export function apiError(refusal: Refusal): ApiError {
  const other = refusal.status >= 500 ? ServiceError : ApiError;
  const kind = BY_CODE.get(refusal.code) ?? BY_STATUS.get(refusal.status) ?? other;
  return new kind(refusal);
}
