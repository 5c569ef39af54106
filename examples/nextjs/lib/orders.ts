/** An order, with the payment of its latest attempt. A real shop stores its orders in a database. */
export interface Order {
  id: string;
  attempt: number; // part of the idempotency key
  paymentId?: string;
  amount: string;
  currency: string;
  status: "waiting" | "unpaid" | "paid";
  handedOut: number; // how often the goods were delivered
}

// Next.js may load a module once for each route, but all routes must share one map.
const globals = globalThis as unknown as { orders?: Map<string, Order> };
export const orders = (globals.orders ??= new Map<string, Order>());

/** Returns the order with this id, and creates it on the first click. The server sets the price, never the page. */
export function placeOrder(id: string): Order {
  const newOrder: Order = { id, attempt: 1, amount: "1590.00", currency: "THB", status: "waiting", handedOut: 0 };
  const order = orders.get(id) ?? newOrder;
  orders.set(id, order);
  return order;
}

/** Returns the path of the page to which the buyer returns. */
export function pageOf(order: Order): string {
  return `/orders/${order.id}`;
}

export function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}
