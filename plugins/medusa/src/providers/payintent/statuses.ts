/** What Medusa calls the statuses of the service. */

import type { PaymentActions, PaymentSessionStatus } from "@medusajs/framework/types";
import type { PaymentStatus } from "payintent-sdk";

/** Of a session; a status that is new does not let a cart become an order. */
const SESSION = new Map<PaymentStatus, PaymentSessionStatus>([
  ["PENDING", "pending"],
  ["PROCESSING", "pending"],
  ["PAID", "captured"],
  ["PARTIALLY_REFUNDED", "captured"],
  ["REFUNDED", "captured"],
  ["FAILED", "error"],
  ["EXPIRED", "canceled"],
  ["CANCELLED", "canceled"],
]);
/** Of a webhook. A payment that was given back, all or in part, is for a person to look at. */
const ACTION = new Map<PaymentStatus, PaymentActions>([
  ["PENDING", "pending"],
  ["PROCESSING", "pending"],
  ["PAID", "captured"],
  ["FAILED", "failed"],
  ["EXPIRED", "canceled"],
  ["CANCELLED", "canceled"],
]);
const UNPAID = new Set<PaymentStatus>(["FAILED", "EXPIRED", "CANCELLED"]);

/** Gives the status of a session by that of its payment. */
export function sessionStatus(status: PaymentStatus): PaymentSessionStatus {
  return SESSION.get(status) ?? "error";
}

/** Gives what a webhook asks Medusa to do. */
export function webhookAction(status: PaymentStatus): PaymentActions {
  return ACTION.get(status) ?? "not_supported";
}

/** Tells whether a payment has ended without money. */
export function endedUnpaid(status: PaymentStatus): boolean {
  return UNPAID.has(status);
}
