/** Events, as webhooks carry them and as the feed lists them. */

import type { DeliveryState, Metadata, PaymentStatus } from "./models.js";

interface EndedPayment {
  id: string;
  status: PaymentStatus;
  currency: string;
  amount: string;
  payer_uid: string;
  metadata: Metadata;
}

/** A payment that is paid: hand out what was bought, once. */
export interface CompletedPayment extends EndedPayment {
  receipt_id: string;
  provider: string;
  paid_at: string;
}

/** A payment that failed. */
export interface FailedPayment extends EndedPayment {
  failure_reason: string;
  failed_at: string;
}

/** A payment whose time is over. */
export interface ExpiredPayment extends EndedPayment {
  expired_at: string;
}

/** A payment that was cancelled. */
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

/** Any event. One of a kind that this release does not know: answer 2xx, and leave it. */
export type Event = PaymentCompleted | PaymentFailed | PaymentExpired | PaymentCancelled;
export type EventType = Event["type"];

/** An event of a webhook that is to be believed; `id` is the `webhook-id`, which its body lacks. */
export type VerifiedEvent = Event & { readonly id: string };

/** How far the webhook of an event is. */
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

/** Events in their one order; go on with `after`. */
export interface EventFeed {
  data: FeedEvent[];
  after: string;
  has_more: boolean;
}

/** An event that will be sent again. */
export interface ReplayedEvent {
  id: string;
  delivery: EventDelivery;
}
