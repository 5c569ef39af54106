/** Parameters of the methods. */

import type { EventType } from "./events.js";
import type { CaseStatus, DisputeState, Metadata, PaymentStatus, RefundStatus } from "./models.js";

/** A payment to create. `amount` is a decimal string in whole units, and `expires_in` is in seconds. */
export interface CreatePayment {
  amount: string;
  currency: string;
  payer_uid: string;
  payer_email?: string;
  expires_in?: number;
  country?: string;
  metadata?: Metadata;
  include_pegged_assets?: boolean;
  return_url?: string;
  cancel_url?: string;
}

/** A refund to create. By default, it refunds the full remainder. */
export interface CreateRefund {
  amount?: string;
  reason?: string;
  destination?: string;
}

/** A payment link to create. Without `amount`, the buyer enters an amount. */
export interface CreatePaymentLink {
  title: string;
  currency: string;
  amount?: string;
  amount_min?: string;
  amount_max?: string;
  description?: string;
  order_id?: string;
  max_uses?: number;
  expires_at?: string | Date;
  return_url?: string;
  cancel_url?: string;
}

/** A test card, which determines the outcome. Default: `4242424242424242`. */
export interface PayTestPayment {
  card?:
    | "4242424242424242"
    | "4000000000000002"
    | "4000000000009995"
    | "4000000000000069"
    | "4000000000000127"
    | "4000000000000119"
    | "4000002500003155"
    | "4000009900000012"
    | "4000009900000020"
    | "4000009900000046"
    | "4000009900000079"
    | "4000009900000087"
    | "4000009900000103"
    | "4000000000000259"
    | "4000009900000160"
    | "4000009900000178";
}

/** The decline code of a test card. Default: `card_declined`. */
export interface DeclineTestPayment {
  code?:
    | "card_declined"
    | "insufficient_funds"
    | "expired_card"
    | "incorrect_cvc"
    | "processing_error"
    | "authentication_failed";
}

/** The state of a test payment's dispute. Default: `open`. */
export interface DisputeTestPayment {
  state?: "open" | "won" | "lost";
}

/** A transfer to a test address. Default: the remaining amount in the token that the buyer selected. */
export interface TransferToTestPayment {
  amount?: string;
  token?: "USDT" | "USDC";
}

/** The page of a list, and its maximum length. */
export interface PageParameters {
  limit?: number;
  cursor?: string;
}

export interface ListPayments extends PageParameters {
  status?: PaymentStatus;
  currency?: string;
  payer_uid?: string;
  created_from?: string | Date;
  created_to?: string | Date;
}

export interface ListUpdatedRefunds extends PageParameters {
  status?: RefundStatus;
  updated_since?: string | Date;
}

export interface ListCases extends PageParameters {
  status?: CaseStatus;
  kind?: string;
  payment_id?: string;
}

export interface ListDisputes extends PageParameters {
  status?: DisputeState;
}

export interface ListStatements extends PageParameters {
  currency?: string;
}

/** The cursor in the feed. `wait` is the maximum wait in seconds for the first event, at most 25. */
export interface ListEvents {
  after?: string;
  types?: readonly EventType[];
  limit?: number;
  wait?: number;
}
