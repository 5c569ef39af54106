/** Maps the service's statuses to Medusa's statuses. */

import type { PaymentActions, PaymentSessionStatus } from "@medusajs/framework/types";
import type { PaymentStatus } from "payintent-sdk";

/** For a session. A cart does not become an order if the status is unknown. */
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
/** For a webhook. A fully or partially refunded payment needs manual review. */
const ACTION = new Map<PaymentStatus, PaymentActions>([
  ["PENDING", "pending"],
  ["PROCESSING", "pending"],
  ["PAID", "captured"],
  ["FAILED", "failed"],
  ["EXPIRED", "canceled"],
  ["CANCELLED", "canceled"],
]);
const UNPAID = new Set<PaymentStatus>(["FAILED", "EXPIRED", "CANCELLED"]);

/** Returns the status of a session for the status of its payment. */
export function sessionStatus(status: PaymentStatus): PaymentSessionStatus {
  return SESSION.get(status) ?? "error";
}

/** Returns the action for a webhook. */
export function webhookAction(status: PaymentStatus): PaymentActions {
  return ACTION.get(status) ?? "not_supported";
}

/** Returns whether a payment has ended unpaid. */
export function endedUnpaid(status: PaymentStatus): boolean {
  return UNPAID.has(status);
}
