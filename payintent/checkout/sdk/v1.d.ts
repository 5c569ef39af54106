// Types of the browser SDK, for the script v1.js (`window.PayIntent`) and its loader.

/** Loads v1.js from the service, once for each URL. Importing the loader has no effect. */
export declare function loadCheckout(options: LoadOptions): Promise<CheckoutSdkFactory>;

export interface LoadOptions {
  /** URL of the service's script: `…/sdk/v1.js`, or `…/sdk/v1.<hash>.js` to pin a version. */
  src: string;
  /** Default: 10 000. */
  timeoutMs?: number;
  /** Subresource integrity value of a pinned script. */
  integrity?: string;
  /** Nonce of the script element, for a Content-Security-Policy that requires a nonce. */
  nonce?: string;
}

export interface CheckoutSdkFactory {
  /** Creates an SDK. Throws `HTTP_NOT_ALLOWED` in an insecure context. */
  (options?: SdkOptions): CheckoutSdk;
  readonly version: string;
  readonly CheckoutError: typeof CheckoutError;
}

export interface SdkOptions {
  /** Default: `/v1` at the script's origin. */
  apiBase?: string;
  /** Default: `/c` at the script's origin. */
  checkoutBase?: string;
  /** The language of the checkout, such as `th`. */
  locale?: string;
  /** Responses of `GET /v1/chains/{slug}` that you have stored. Deposit addresses are verified against them. */
  chains?: StoredChain[];
  /** Timeout of each request. Default: 10 000. */
  timeoutMs?: number;
  /** Maximum number of retries of a read request. Default: 2. */
  maxRetries?: number;
}

export interface CheckoutSdk {
  /** Navigates to the checkout. */
  redirectToCheckout(options: { checkoutUrl: string; target?: "_self" | "_top" }): Promise<never>;
  /** Opens the checkout in a window. Call it in a click handler. Closing the window does not cancel the payment. */
  openPopup(options: PopupOptions): Promise<CheckoutResult>;
  /** Shows the checkout in a frame on this page. The page's origin must be registered for the merchant. */
  widget(options: WidgetOptions): Widget;
  retrieve(checkoutId: string, options?: { signal?: AbortSignal }): Promise<CheckoutView>;
  /** Without `currency`, returns the quotes in all currencies. */
  listQuotes(
    checkoutId: string,
    options?: { currency?: string; country?: string; signal?: AbortSignal },
  ): Promise<QuoteList>;
  selectQuote(checkoutId: string, selection: SelectQuote): Promise<Selection>;
  /** Performs the next action of a selection. The hosted page performs actions that the SDK does not know. */
  handleNextAction(
    checkoutId: string,
    action: NextAction,
    options?: { target?: Target; provider?: Eip1193Provider; signal?: AbortSignal },
  ): Promise<CheckoutResult>;
  /** Waits for the result. Resolves if the checkout is paid; otherwise rejects with the reason. */
  waitForResult(checkoutId: string, options?: WaitOptions): Promise<CheckoutResult>;
  /** Cancels the payment if no method has been selected. */
  cancel(checkoutId: string): Promise<CheckoutResult>;
  readonly onchain: Onchain;
  /** Adds a listener, and returns a function that removes it. */
  on<E extends keyof SdkEvents>(event: E, listener: (detail: SdkEvents[E]) => void): () => void;
}

export type Target = "_self" | "_top" | "popup";

export interface SdkEvents {
  status: { checkoutId: string; status: Status };
  onchain: { checkoutId: string } & OnchainProgress;
  /** Every error with which an SDK call rejects. */
  error: CheckoutError;
}

/** Asks your server to create a payment for the amount that was set in the widget. */
export type CreateCheckout = (
  order: Amount & { country?: string },
) => Promise<{ checkoutId?: string; checkoutUrl: string }>;

export interface PopupOptions {
  checkoutUrl?: string;
  /** Use this function instead of `checkoutUrl`. It is called after the window has opened. */
  createCheckout?: () => Promise<{ checkoutId?: string; checkoutUrl: string }>;
  width?: number;
  height?: number;
  /** Aborting the signal stops the wait and closes the window. */
  signal?: AbortSignal;
}

export interface WaitOptions {
  /** Default: the remaining lifetime of the checkout plus two minutes. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

export interface Amount {
  /** A plain decimal number, such as `"1590.00"`. */
  amount: string;
  currency: string;
}

export type Status =
  | "PENDING"
  | "PROCESSING"
  | "PAID"
  | "FAILED"
  | "EXPIRED"
  | "CANCELLED"
  | "PARTIALLY_REFUNDED"
  | "REFUNDED"
  | (string & {});

export type FailureReason =
  | "UNKNOWN"
  | "DECLINED"
  | "TX_REVERTED"
  | "AMOUNT_MISMATCH"
  | "TOKEN_MISMATCH"
  | "ONCHAIN_TIMEOUT"
  | (string & {});

export interface CheckoutResult {
  status: Status;
  checkoutId: string;
  paymentId?: string;
  receiptId?: string;
  returnUrl?: string;
}

export interface CheckoutView {
  checkout_id: string;
  payment_id: string;
  status: Status;
  version: number;
  amount: string;
  currency: string;
  decimals: number;
  merchant: { name: string; logo_url?: string; support_url?: string; terms_url?: string };
  product?: {
    name?: string;
    detail?: string;
    image?: string;
    category?: string;
    quantity?: number;
    vendor?: string;
  };
  order_id?: string;
  suggested_country?: string;
  payer_email?: string;
  include_pegged_assets: boolean;
  server_time: string;
  expires_at?: string;
  can: { select: boolean; change_method: boolean; cancel: boolean };
  selected?: Quote;
  next_action: NextAction;
  failure_reason?: FailureReason;
  receipt_id?: string;
  return_url?: string;
  events_url?: string;
  /** Whether the checkout has ended and no merchant notification is pending. */
  merchant_told?: boolean;
}

export interface Quote {
  payment_method_id: number;
  kind: "card" | "redirect" | "qr" | "onchain" | (string & {});
  label: string;
  provider: string;
  currency: string;
  chain?: string;
  token?: string;
  amount: string;
  fee_mode: string;
  fee_rate: string;
  fee_amount: string;
  estimated_tax: string;
  total_amount: string;
}

export interface QuoteList {
  checkout_id: string;
  currency: string;
  country: string;
  country_source: "query" | "geo" | "default" | "first" | (string & {});
  quotes: Quote[];
}

export interface SelectQuote {
  payment_method_id: number;
  currency?: string;
  country?: string;
  payer_email?: string;
  locale?: string;
  /** The URL's origin must be registered for the merchant. */
  return_url?: string;
  /** The total that the buyer saw. If the total has changed, the request fails with `CONFLICT`. */
  expected_total_amount?: string;
}

export interface Selection {
  checkout: CheckoutView;
  quote: Quote;
  session: { id: string; expires_at: string };
  next_action: NextAction;
}

export interface NextAction {
  type:
    | "redirect"
    | "embedded_card"
    | "onchain_session"
    | "wait"
    | "none"
    | (string & {});
  redirect?: {
    url: string;
    method?: "GET" | "POST";
    fields?: Record<string, string>;
    expires_at?: string;
  };
  embedded_card?: {
    provider: string;
    script_url: string;
    publishable_key: string;
    client_secret: string;
  };
  onchain_session?: { session_id: string; chain: string; network_id: number; url: string };
  wait?: { poll_after_ms: number };
  none?: { poll_after_ms?: number };
  /** The hosted page, which supports all actions. */
  fallback_url?: string;
}

/** Pass either the URL of an existing checkout, or a function that creates a checkout when `submit` is called. */
export interface WidgetOptions {
  checkoutUrl?: string;
  createCheckout?: CreateCheckout;
  locale?: string;
  country?: string;
  /** Time within which the frame must load. Default: 15 000. */
  loadTimeoutMs?: number;
  /** Title of the frame for screen readers. Default: `Checkout`. */
  title?: string;
}

export interface Widget {
  /** With `createCheckout`: sets the amount to pay. Each new amount requires a new checkout. */
  setAmount(amount: Amount): Promise<void>;
  /** Resolves when the checkout is displayed; with `createCheckout`, before a checkout has been created. */
  mount(element: string | Element): Promise<void>;
  update(changes: { locale?: string; country?: string; amount?: Amount }): Promise<void>;
  /** Submits the buyer's selection, and waits for the result. */
  submit(): Promise<CheckoutResult>;
  unmount(): void;
  on<E extends keyof WidgetEvents>(event: E, listener: (detail: WidgetEvents[E]) => void): () => void;
}

export interface WidgetEvents {
  ready: { status?: Status | null };
  resize: { height: number };
  change: { kind: string };
  status: { status: Status };
  onchain: { progress: OnchainProgress };
  next_action: { action: NextAction };
  refused: { code?: string; message?: string; status?: number; requestId?: string };
  result: { status: Status };
  error: CheckoutError;
}

export interface Eip1193Provider {
  request(call: { method: string; params?: unknown[] }): Promise<any>;
}

export interface WalletInfo {
  uuid: string;
  name: string;
  icon?: string;
  rdns?: string;
  provider: Eip1193Provider;
}

export interface Onchain {
  /** Finds the wallets in this browser through EIP-6963, or uses `window.ethereum` if there are none. */
  discover(options?: { timeoutMs?: number }): Promise<WalletInfo[]>;
  connect(provider: Eip1193Provider): Promise<{ address: string; chainId: number }>;
  /** Throws `INVALID_RESPONSE` if the deposit address cannot be derived from a stored chain, and `MISSING_PARAM` if `chains` is not set. */
  session(sessionId: string): Promise<OnchainSession | DepositSession>;
  /** Switches the wallet to a chain, and adds the chain if the wallet does not know it. */
  ensureChain(provider: Eip1193Provider, chain: OnchainSession["chain"]): Promise<void>;
  /** Pays the session; for a deposit, transfers the remaining amount. `txHash` is null if it was already paid. */
  pay(options: {
    checkoutId: string;
    session: OnchainSession | DepositSession;
    provider: Eip1193Provider;
    signal?: AbortSignal;
  }): Promise<{ txHash: string | null }>;
}

export interface OnchainProgress {
  session_id: string;
  status: string;
  tx_hash: string;
  step: string;
  seen: number;
  needed: number | null;
  eta_seconds: number;
  /** Only for deposit sessions: the final amount, the amount that is not final yet, and the amount still to be sent. */
  received?: DepositAmount;
  pending?: DepositAmount;
  remaining?: DepositAmount;
}

export interface DepositAmount {
  amount: string;
  amount_smallest_unit: string;
}

export interface OnchainStep {
  kind: "approve_reset" | "approve" | "pay" | (string & {});
  when: "always" | "allowance_lt_amount" | "allowance_nonzero_lt_amount" | (string & {});
  to: string;
  value: string;
  data: string;
  function?: string;
  args?: { name: string; type: string; value: string }[];
}

/** A query to the chain: a contract call, or a wallet method that takes the payer's address. */
export interface OnchainCheck {
  method?: string;
  to?: string;
  data?: string;
}

export interface OnchainSession {
  id: string;
  status: string;
  payable: boolean;
  /** Present only if the session is not payable. */
  unpayable_reason?: "closing" | "payment_seen" | "deadline_near" | "chain_halted" | "chain_not_watched";
  pay_uuid: string;
  amount: string;
  amount_smallest_unit: string;
  token: {
    symbol: string;
    address: string | null;
    decimals: number;
    native: boolean;
    approve_zero_first: boolean;
  };
  chain: {
    slug: string;
    network_id: number;
    name: string;
    /** Pass this object unchanged to `wallet_addEthereumChain`. */
    wallet_chain: { chainId: string; [field: string]: unknown };
  };
  contract_address: string;
  receiver: string;
  deadline: number;
  expires_at: string;
  steps: OnchainStep[];
  checks: { balance: OnchainCheck; allowance?: OnchainCheck; already_paid: OnchainCheck };
  links: { metamask?: string; eip681?: string };
  confirmations: { mode: string; seen: number; needed: number | null; eta_seconds: number };
  transactions: { tx_hash: string; step: string; state: string }[];
}

/** A payment to an address. It is a plain transfer, without a contract call or an approval. */
export interface DepositSession extends Omit<OnchainSession, "contract_address" | "steps" | "checks" | "transactions"> {
  deposit_address: string;
  factory_address: string;
  forwarder_address: string;
  init_code_hash: string;
  /** The amounts in final blocks, in blocks that are not final, and still to be sent. */
  received: DepositAmount;
  pending: DepositAmount;
  remaining: DepositAmount;
  transactions: { tx_hash: string; step: string; state: string; amount_smallest_unit: string }[];
}

export interface StoredChain {
  network_id: number;
  deposits: { factory_address: string; init_code_hash: string; receiver: string } | null;
}

export type ErrorType =
  | "network_error"
  | "validation_error"
  | "payment_error"
  | "authentication_error"
  | "rate_limit_error"
  | "server_error"
  | "sdk_error";

export type RetryableCode =
  | "NETWORK_TIMEOUT"
  | "NETWORK_OFFLINE"
  | "SDK_NOT_LOADED"
  | "WIDGET_LOAD_FAILED"
  | "POLLING_TIMEOUT"
  | "WALLET_INIT_FAILED";

export type FinalCode =
  | "SSR_UNSUPPORTED"
  | "INVALID_SCRIPT_URL"
  | "HTTP_NOT_ALLOWED"
  | "MISSING_PARAM"
  | "INVALID_FORMAT"
  | "INVALID_AMOUNT"
  | "INVALID_CURRENCY"
  | "UNSUPPORTED_CURRENCY"
  | "UNSUPPORTED_COUNTRY"
  | "INVALID_RESPONSE"
  | "INVALID_REDIRECT_URL"
  | "CHECKOUT_EXPIRED"
  | "PAYMENT_DECLINED"
  | "PAYMENT_CANCELLED"
  | "USER_REJECTED"
  | "PAYMENT_FAILED"
  | "INSUFFICIENT_FUNDS"
  | "POPUP_BLOCKED"
  | "WRONG_CHAIN"
  | "ONCHAIN_TX_FAILED"
  | "AMOUNT_NOT_SET"
  | "WIDGET_NOT_MOUNTED"
  | "WIDGET_FAILED";

/** API codes without an equivalent in this list, such as `RATE_LIMITED`, are passed through. */
export type ErrorCode = RetryableCode | FinalCode | (string & {});

export interface ErrorFields {
  type: ErrorType;
  code: ErrorCode;
  message: string;
  retryable: boolean;
  requestId: string | null;
  checkoutId: string | null;
}

export interface FraudVerdict {
  outcome: "DENY" | (string & {});
  code: string;
  message: string;
  risk_level: string;
  risk_score: number;
  rule: string;
}

export declare class CheckoutError extends Error implements ErrorFields {
  constructor(code: ErrorCode, message?: string, more?: Partial<CheckoutError>);
  readonly type: ErrorType;
  readonly code: ErrorCode;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  readonly requestId: string | null;
  readonly checkoutId: string | null;
  /** Delay before the next attempt, if the service requires a delay. */
  readonly retryAfterMs?: number;
  /** HTTP status of the response, if there was a response. */
  readonly status?: number;
  /** Present if the payment has failed. */
  readonly failureReason?: FailureReason;
  /** Present if fraud screening denied the request. Treat an unknown code as a denial. */
  readonly fds?: FraudVerdict;
  toJSON(): ErrorFields;
}

declare global {
  interface Window {
    readonly PayIntent: CheckoutSdkFactory;
  }
}

// The types below are internal: v1.js passes these functions to v1.onchain.js.

export interface Request {
  method?: string;
  body?: object;
  signal?: AbortSignal;
  patience?: number;
}

type Send = (path: string, field: string, options?: Request) => Promise<any>;

export type WalletPart = (tools: {
  fail: (code: string, message?: string, more?: object) => never;
  need: <T>(value: T, name: string) => NonNullable<T>;
  sleep: (ms: number) => Promise<void>;
  request: Send;
  read: Send;
  halt: (signal?: AbortSignal) => void;
  chains?: StoredChain[];
}) => Onchain;
