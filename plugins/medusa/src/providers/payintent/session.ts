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
}

type Data = Record<string, unknown>;

/** Gives what Medusa is to keep of a payment that was created. */
export function sessionOf(payment: CreatedPayment, sessionId: string, price: Price): Data {
  const { id, checkout_url } = payment;
  const session: Session = { id, session_id: sessionId, checkout_url, ...price, refunded: "0" };
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
  };
}

/** Reads one text of it. */
export function textOf(data: Data | undefined, name: string): string {
  const value = data?.[name];
  if (typeof value === "string" && value) return value;
  throw new MedusaError(MedusaError.Types.INVALID_DATA, `the payment session has no ${name}`);
}
