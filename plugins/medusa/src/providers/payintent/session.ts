/** The data that Medusa stores for a payment, first in the payment session and later in Medusa's own payment. */

import { MedusaError } from "@medusajs/framework/utils";
import type { CreatedPayment } from "payintent-sdk";

import type { Price } from "./amounts";

/** Buyers can read and change this data, so every decision also depends on the service. */
export interface Session extends Price {
  id: string;
  session_id: string;
  /** The URL to which the shop redirects the buyer. */
  checkout_url: string;
  /** The amount that Medusa has refunded. */
  refunded: string;
  /** The page to which the buyer returns, if the storefront has set it. */
  return_url?: string;
  /** The page for buyers who have not paid. */
  cancel_url?: string;
}

/** The pages of the storefront. The service rejects pages whose origin is not registered for the shop. */
export type Pages = Pick<Session, "return_url" | "cancel_url">;

type Data = Record<string, unknown>;

/** Returns the session data for a created payment. */
export function sessionOf(payment: CreatedPayment, sessionId: string, price: Price, pages: Pages): Data {
  const { id, checkout_url } = payment;
  const session: Session = { id, session_id: sessionId, checkout_url, ...price, refunded: "0", ...pages };
  return { ...session };
}

/** Reads the session data. Throws an error if it was not created by this provider. */
export function readSession(data: Data | undefined): Session {
  const text = (name: keyof Session) => textOf(data, name);
  return {
    id: text("id"),
    session_id: text("session_id"),
    checkout_url: text("checkout_url"),
    amount: text("amount"),
    currency: text("currency"),
    refunded: text("refunded"),
    ...pagesOf(data),
  };
}

/** Reads the pages of the storefront, which are optional. */
export function pagesOf(data: Data | undefined): Pages {
  const { return_url, cancel_url } = data ?? {};
  return {
    ...(typeof return_url === "string" && { return_url }),
    ...(typeof cancel_url === "string" && { cancel_url }),
  };
}

/** Reads a required string. */
export function textOf(data: Data | undefined, name: string): string {
  const value = data?.[name];
  if (typeof value === "string" && value) return value;
  throw new MedusaError(MedusaError.Types.INVALID_DATA, `the payment session does not contain ${name}`);
}
