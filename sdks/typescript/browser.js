// Bundlers for browsers select this file, because an API key must never be in a web page.
throw new Error("payintent-sdk is for servers: anyone who has the API key can refund payments");
// Every export, so that all imports resolve and reach the error.
export const [
  API_VERSION, ApiError, apiError, AuthenticationError, BadRequestError, Client, ConflictError,
  deriveDepositAddress, ForbiddenError, IdempotencyConflictError, InvalidAmountError,
  InvalidStateError, NoAnswerError, NotFoundError, PayintentError, PaymentDeniedError,
  RateLimitedError, RefundExceedsRemainingError, ServiceError, TestSide, UnprocessableError,
  UnreadableAnswerError, UnsupportedError, verifyDepositAddress, VERSION, WebhookBodyError,
  WebhookError, WebhookHeaderError, WebhookReceiver, webhooks, WebhookSignatureError,
  WebhookTimeError, WrongDepositAddressError,
] = [];
