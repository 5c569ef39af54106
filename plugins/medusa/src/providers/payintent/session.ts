/** What Medusa keeps of a payment: the data of its session, and then of its own payment. */

import { MedusaError } from "@medusajs/framework/utils";
import type { CreatedPayment } from "payintent-sdk";

import type { Price } from "./amounts";

/** Buyers can read it, and it decides nothing that the service is not asked about too. */
export interface Session extends Price {
  id: string;
  session_id: string;
  /** Where the shop sends the buyer. */
  checkout_url: string;
  /** What Medusa has had given back so far. */
  refunded: string;
  /** Where the checkout leads the buyer back to, if the storefront has said so. */
  return_url?: string;
  /** Where the checkout leads a buyer who has not paid. */
  cancel_url?: string;
}

/** The pages of the storefront. The service refuses those of other origins than the shop's. */
export type Pages = Pick<Session, "return_url" | "cancel_url">;

type Data = Record<string, unknown>;

/** Gives what Medusa is to keep of a payment that was created. */
export function sessionOf(payment: CreatedPayment, sessionId: string, price: Price, pages: Pages): Data {
  const { id, checkout_url } = payment;
  const session: Session = { id, session_id: sessionId, checkout_url, ...price, refunded: "0", ...pages };
  return { ...session };
}

/** Reads what Medusa has kept; throws where it is none of this provider's. */
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

/** Reads the pages of the storefront, which it may leave out. */
export function pagesOf(data: Data | undefined): Pages {
  const { return_url, cancel_url } = data ?? {};
  return {
    ...(typeof return_url === "string" && { return_url }),
    ...(typeof cancel_url === "string" && { cancel_url }),
  };
}

/** Reads one text of it. */
export function textOf(data: Data | undefined, name: string): string {
  const value = data?.[name];
  if (typeof value === "string" && value) return value;
  throw new MedusaError(MedusaError.Types.INVALID_DATA, `the payment session has no ${name}`);
}
