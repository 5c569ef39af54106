/**
 * What the service answers: one type for each object schema of its openapi.yaml.
 *
 * Amounts are decimal texts in whole units of their currency, times are RFC 3339 texts in UTC. An
 * enumeration may have a value that is not listed, for a newer service may add to it.
 */

/** One of these texts, or one of a newer service. */
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
export type RefundStatus = Open<"PENDING" | "SUCCEEDED" | "FAILED">;
export type CaseStatus = Open<"OPEN" | "REFUNDED" | "ACCEPTED" | "DISMISSED">;
export type DisputeState = Open<"inquiry" | "open" | "under_review" | "won" | "lost" | "closed">;
export type DeliveryState = Open<"pending" | "delivered" | "dead" | "skipped">;
export type Metadata = Record<string, unknown>;

/** Why the service's fraud rules denied a payment. */
export interface FraudDecision {
  outcome: string;
  code: string;
  message: string;
  risk_level: string;
  risk_score: number;
  rule: string;
}

/** A payment as it was created; send the buyer to `checkout_url`. */
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
}

/** A payment as it is now. */
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

/** The answer to a cancellation. */
export interface Cancelled {
  status: string;
}

/** A refund; there is no webhook for it, so ask or list until it has ended. */
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

/** The dispute of a case. */
export interface CaseDispute {
  state: DisputeState;
  funds: string;
  reason?: string;
  respond_by?: string;
}

/** Money or a contradiction that the operator looks at. */
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

/** A currency that buyers of a country can pay. */
export interface CatalogCurrency {
  currency: string;
  decimals: number;
}

/** A country whose buyers can pay. */
export interface CatalogCountry {
  country_code: string;
  name: string;
  currencies: CatalogCurrency[];
}

/** Where and in which currencies the merchant can be paid. */
export interface Catalog {
  updated_at: string;
  countries: CatalogCountry[];
}

/** What the merchant is owed in a currency, or in a token on its chain. */
export interface Balance {
  currency: string;
  amount: string;
  chain?: string;
}

/** What the merchant is owed. */
export interface BalanceList {
  data: Balance[];
}

/** What moved what the merchant is owed in a day; fees and payouts are below zero. */
export interface Statement {
  id: string;
  currency: string;
  /** Of this currency's statements, from 1 on. */
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

/** What one payment, refund, dispute, case, adjustment or payout moved. */
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

/** A statement, and a page of its lines. */
export interface StatementWithLines extends Statement {
  lines: StatementLine[];
  next_cursor?: string;
}

/** How far a test merchant's clock was advanced in all. */
export interface TestClock {
  advanced_seconds: number;
}

/** How many of a test merchant's rows a clock has moved. */
export interface MovedTimes {
  payments: number;
  sessions: number;
  refunds: number;
  deliveries: number;
}

/** What an advance of the clock did. */
export interface AdvancedTestClock {
  advanced_seconds: number;
  moved: MovedTimes;
}

/** One page of a list; the last one has no `next_cursor`. */
export interface Page<T> {
  data: T[];
  next_cursor?: string;
}
