/** Converts Medusa's numbers to the service's decimal strings, without floats. */

import type { BigNumberInput } from "@medusajs/framework/types";
import { MathBN, defaultCurrencies } from "@medusajs/framework/utils";

/** An amount in the service's format. */
export interface Price {
  amount: string;
  currency: string;
}

/** Rounds an amount to its currency's decimals, as Medusa does when it compares amounts. */
export function priceOf(amount: BigNumberInput, currencyCode: string): Price {
  const currency = currencyCode.toUpperCase();
  const decimals = defaultCurrencies[currency]?.decimal_digits;
  const exact = MathBN.convert(amount, decimals);
  return { amount: decimals === undefined ? exact.toFixed() : exact.toFixed(decimals), currency };
}

/** Returns whether two amounts are equal, such as 20.00 and 20. */
export function isSame(first: Price, second: Price): boolean {
  return first.currency === second.currency && MathBN.eq(first.amount, second.amount);
}

/** Adds amounts in the same currency. */
export function total(...amounts: string[]): string {
  return MathBN.add(...amounts).toFixed();
}
