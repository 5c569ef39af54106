/** Medusa's numbers as the service's decimal texts, never by way of a float. */

import type { BigNumberInput } from "@medusajs/framework/types";
import { MathBN, defaultCurrencies } from "@medusajs/framework/utils";

/** An amount as the service takes it. */
export interface Price {
  amount: string;
  currency: string;
}

/** Writes an amount in its currency's decimals, as Medusa rounds it where it compares amounts. */
export function priceOf(amount: BigNumberInput, currencyCode: string): Price {
  const currency = currencyCode.toUpperCase();
  const decimals = defaultCurrencies[currency]?.decimal_digits;
  const exact = MathBN.convert(amount, decimals);
  return { amount: decimals === undefined ? exact.toFixed() : exact.toFixed(decimals), currency };
}

/** Tells whether two amounts are one: 20.00 and 20 are. */
export function isSame(first: Price, second: Price): boolean {
  return first.currency === second.currency && MathBN.eq(first.amount, second.amount);
}

/** Adds amounts of one currency. */
export function total(...amounts: string[]): string {
  return MathBN.add(...amounts).toFixed();
}
