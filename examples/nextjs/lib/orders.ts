// The shop's orders. A real shop stores them in a database.
export interface Order {
  id: string;
  attempt: number; // part of the idempotency key
  paymentId?: string;
  amount: string;
  currency: string;
  status: "waiting" | "paid";
}

// Next.js may load a module once for each route; the process has one map.
const shared = globalThis as unknown as { orders?: Map<string, Order> };
export const orders = (shared.orders ??= new Map());

export function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}
