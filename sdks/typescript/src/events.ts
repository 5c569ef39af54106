/** Events of webhooks and of the event feed. */

import type { DeliveryState, Metadata, PaymentStatus } from "./models.js";

interface EndedPayment {
  id: string;
  status: PaymentStatus;
  currency: string;
  amount: string;
  payer_uid: string;
  metadata: Metadata;
}

/** A paid payment. Fulfil the order once. */
export interface CompletedPayment extends EndedPayment {
  receipt_id: string;
  provider: string;
  paid_at: string;
}

/** A failed payment. */
export interface FailedPayment extends EndedPayment {
  failure_reason: string;
  failed_at: string;
}

/** An expired payment. */
export interface ExpiredPayment extends EndedPayment {
  expired_at: string;
}

/** A cancelled payment. */
export interface CancelledPayment extends EndedPayment {
  cancelled_at: string;
}

export interface PaymentCompletedData {
  payment: CompletedPayment;
}

export interface PaymentFailedData {
  payment: FailedPayment;
}

export interface PaymentExpiredData {
  payment: ExpiredPayment;
}

export interface PaymentCancelledData {
  payment: CancelledPayment;
}

export interface PaymentCompleted {
  type: "payment.completed";
  timestamp: string;
  data: PaymentCompletedData;
}

export interface PaymentFailed {
  type: "payment.failed";
  timestamp: string;
  data: PaymentFailedData;
}

export interface PaymentExpired {
  type: "payment.expired";
  timestamp: string;
  data: PaymentExpiredData;
}

export interface PaymentCancelled {
  type: "payment.cancelled";
  timestamp: string;
  data: PaymentCancelledData;
}

/** Any event. If you do not know its type, respond with 2xx and ignore it. */
export type Event = PaymentCompleted | PaymentFailed | PaymentExpired | PaymentCancelled;
export type EventType = Event["type"];

/** The event of a verified webhook. `id` is the `webhook-id`, which is not in the body. */
export type VerifiedEvent = Event & { readonly id: string };

/** Delivery status of an event's webhook. */
export interface EventDelivery {
  state: DeliveryState;
  attempts: number;
  next_attempt_at?: string;
  delivered_at?: string;
}

/** An event of the feed; `id` is the `webhook-id` of its webhook. */
export interface FeedEvent {
  id: string;
  event: Event;
  delivery: EventDelivery;
}

/** Events in feed order. Continue with `after`. */
export interface EventFeed {
  data: FeedEvent[];
  after: string;
  has_more: boolean;
}

/** An event whose webhook will be resent. */
export interface ReplayedEvent {
  id: string;
  delivery: EventDelivery;
}
