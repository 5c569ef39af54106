/**
 * Types of the service's responses, one per object schema of its openapi.yaml.
 *
 * Amounts are decimal strings in whole units of their currency. Times are RFC 3339 strings in UTC. A
 * newer service may return enumeration values that are not listed.
 */

/** One of these strings, or a value from a newer service. */
export type Open<T extends string> = T | (string & Record<never, never>);

export type PaymentStatus = Open<
  | "PENDING"
  | "PROCESSING"
  | "PAID"
  | "FAILED"
  | "EXPIRED"
  | "CANCELLED"
  | "PARTIALLY_REFUNDED"
  | "REFUNDED"
>;
export type PaymentLinkStatus = Open<"OPEN" | "USED_UP" | "EXPIRED" | "INACTIVE">;
export type RefundStatus = Open<"PENDING" | "SUCCEEDED" | "FAILED">;
export type CaseStatus = Open<"OPEN" | "REFUNDED" | "ACCEPTED" | "DISMISSED">;
export type DisputeState = Open<"inquiry" | "open" | "under_review" | "won" | "lost" | "closed">;
export type DeliveryState = Open<"pending" | "delivered" | "dead" | "skipped">;
export type Metadata = Record<string, unknown>;

/** The reasons why the fraud rules denied a payment. */
export interface FraudDecision {
  outcome: string;
  code: string;
  message: string;
  risk_level: string;
  risk_score: number;
  rule: string;
}

/** A new payment. Redirect the buyer to `checkout_url`. */
export interface CreatedPayment {
  id: string;
  checkout_id: string;
  checkout_url: string;
  merchant_id: number;
  status: PaymentStatus;
  currency: string;
  amount: string;
  payer_uid: string;
  tax_amount: string;
  refunded_amount: string;
  include_pegged_assets: boolean;
  tax_manager: string;
  created_at: string;
  updated_at: string;
  expires_at: string;
  metadata: Metadata;
  return_url?: string;
  cancel_url?: string;
}

/** The current state of a payment. */
export interface Payment {
  id: string;
  checkout_id: string;
  merchant_id: number;
  status: PaymentStatus;
  currency: string;
  amount: string;
  payer_uid: string;
  tax_amount: string;
  refunded_amount: string;
  include_pegged_assets: boolean;
  tax_manager: string;
  created_at: string;
  updated_at: string;
  metadata: Metadata;
  checkout_url?: string;
  return_url?: string;
  cancel_url?: string;
  expires_at?: string;
  payment_method_id?: number;
  provider?: string;
  quote_currency?: string;
  fee_mode?: string;
  fee_rate?: string;
  fee_amount?: string;
  estimated_tax?: string;
  quote_total_amount?: string;
  paid_at?: string;
  receipt_id?: string;
  failed_at?: string;
  failure_reason?: string;
  expired_at?: string;
  cancelled_at?: string;
}

/** The response to a cancellation. */
export interface Cancelled {
  status: string;
}

/** A refund. Refunds do not trigger webhooks, so poll the refund until it has ended. */
export interface Refund {
  id: string;
  payment_id: string;
  amount: string;
  currency: string;
  status: RefundStatus;
  created_at: string;
  updated_at: string;
  reason?: string;
  destination?: string;
  failure_reason?: string;
}

/** A page on which buyers create payments. `uses` is the number of open and paid payments. */
export interface PaymentLink {
  id: string;
  url: string;
  status: PaymentLinkStatus;
  title: string;
  currency: string;
  uses: number;
  created_at: string;
  description?: string;
  order_id?: string;
  amount?: string;
  amount_min?: string;
  amount_max?: string;
  max_uses?: number;
  expires_at?: string;
  return_url?: string;
  cancel_url?: string;
  deactivated_at?: string;
}

/** The dispute of a case. */
export interface CaseDispute {
  state: DisputeState;
  funds: string;
  reason?: string;
  respond_by?: string;
}

/** Unexpected money or a discrepancy that the operator reviews. */
export interface Case {
  id: string;
  kind: string;
  status: CaseStatus;
  opened_at: string;
  payment_id?: string;
  currency?: string;
  amount?: string;
  dispute?: CaseDispute;
  closed_at?: string;
}

/** A buyer's dispute at the gateway. */
export interface Dispute {
  case_id: string;
  state: DisputeState;
  funds: string;
  currency: string;
  opened_at: string;
  updated_at: string;
  payment_id?: string;
  amount?: string;
  reason?: string;
  respond_by?: string;
}

/** A currency in which buyers in a country can pay. */
export interface CatalogCurrency {
  currency: string;
  decimals: number;
}

/** A country whose buyers can pay, and its currencies. */
export interface CatalogCountry {
  country_code: string;
  name: string;
  currencies: CatalogCurrency[];
}

/** The countries and currencies in which the merchant can be paid. */
export interface Catalog {
  updated_at: string;
  countries: CatalogCountry[];
}

/** The merchant's balance in a currency, or in a token on a chain. */
export interface Balance {
  currency: string;
  amount: string;
  chain?: string;
}

/** The merchant's balances. */
export interface BalanceList {
  data: Balance[];
}

/** A day's changes to the merchant's balance. Fees and payouts are negative. */
export interface Statement {
  id: string;
  currency: string;
  /** The statement's number among this currency's statements, starting at 1. */
  number: number;
  day: string;
  time_zone: string;
  opening: string;
  payments: string;
  fees: string;
  tax: string;
  refunds: string;
  disputes: string;
  adjustments: string;
  payouts: string;
  closing: string;
  created_at: string;
  chain?: string;
}

/** The effect of a payment, refund, dispute, case, adjustment or payout on the balance. */
export interface StatementLine {
  at: string;
  kind: string;
  fact: string;
  id: string;
  amount: string;
  fee: string;
  tax: string;
  net: string;
  payment_id?: string;
}

/** A statement with a page of its lines. */
export interface StatementWithLines extends Statement {
  lines: StatementLine[];
  next_cursor?: string;
}

/** How far a test merchant's clock has been advanced in total. */
export interface TestClock {
  advanced_seconds: number;
}

/** The number of objects of each kind whose deadlines were moved. */
export interface MovedTimes {
  payments: number;
  sessions: number;
  refunds: number;
  deliveries: number;
}

/** The result of advancing the test clock. */
export interface AdvancedTestClock {
  advanced_seconds: number;
  moved: MovedTimes;
}

/** A page of a list. The last page has no `next_cursor`. */
export interface Page<T> {
  data: T[];
  next_cursor?: string;
}
