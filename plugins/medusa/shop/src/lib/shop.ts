/** A minimal storefront for Medusa: carts, their payment sessions, and orders. */

import { randomUUID } from "node:crypto";

import type { MedusaContainer } from "@medusajs/framework/types";
import { ContainerRegistrationKeys, MathBN, Modules } from "@medusajs/framework/utils";
import {
  addToCartWorkflow,
  completeCartWorkflow,
  createCartWorkflow,
  createPaymentCollectionForCartWorkflow,
  createPaymentSessionsWorkflow,
  createRegionsWorkflow,
  refundPaymentWorkflow,
} from "@medusajs/medusa/core-flows";

const PROVIDER = "pp_payintent_shop";
const CURRENCY = "thb";
const LOCK = { timeout: 30 };
/** The cart for each page of the storefront. In a real shop, the buyer's browser stores the cart's id. */
const carts = new Map<string, string>();
/** The number of times that Medusa has placed the order of each cart, and the goods were delivered. */
const placements = new Map<string, number>();

/** The fields of a cart that this shop reads. */
interface Cart {
  payment_collection?: {
    id: string;
    payment_sessions?: { id: string; amount: number; currency_code: string; data: Record<string, string> }[];
    payments?: { id: string; refunds?: { raw_amount: { value: string } }[] }[];
  };
}

export interface OrderView {
  order_id: string;
  payment_id: string;
  amount: string;
  currency: string;
}

/** Clicks Buy on a page. A second click returns the same payment, unless it has ended unpaid. */
export async function buy(container: MedusaContainer, page: string): Promise<OrderView> {
  return container.resolve(Modules.LOCKING).execute(page, async () => {
    const cartId = carts.get(page) ?? (await createCart(container));
    carts.set(page, cartId);
    await refreshPayment(container, cartId);
    return (await view(container, cartId)) ?? payAgain(container, cartId);
  }, LOCK);
}

/** Makes the provider read the payment of a cart, and replace it if it has ended unpaid. */
async function refreshPayment(container: MedusaContainer, cartId: string): Promise<void> {
  const { payment_collection: collection } = await readCart(container, cartId);
  const session = collection?.payment_sessions?.[0];
  if (!session) return;
  const { id, amount, currency_code, data } = session;
  await container.resolve(Modules.PAYMENT).updatePaymentSession({ id, amount, currency_code, data });
}

/** Creates another payment for a cart, which ends the previous payment. */
export async function payAgain(container: MedusaContainer, cartId: string): Promise<OrderView> {
  const cart = await readCart(container, cartId);
  let collectionId = cart.payment_collection?.id;
  if (!collectionId) {
    await createPaymentCollectionForCartWorkflow(container).run({ input: { cart_id: cartId } });
    collectionId = (await readCart(container, cartId)).payment_collection?.id;
  }
  const page = `${required(process.env["SHOP_URL"])}/graded/${cartId}/return`;
  await createPaymentSessionsWorkflow(container).run({
    input: {
      payment_collection_id: collectionId ?? "",
      provider_id: PROVIDER,
      data: { return_url: page, cancel_url: page },
    },
  });
  return required(await view(container, cartId));
}

/** Adds an item to a cart. */
export async function change(container: MedusaContainer, cartId: string): Promise<OrderView> {
  await addToCartWorkflow(container).run({ input: { cart_id: cartId, items: [item("Bookmark", 5)] } });
  return payAgain(container, cartId);
}

/** Completes the cart, as the page to which the buyer returns does. */
export async function complete(container: MedusaContainer, cartId: string): Promise<void> {
  await completeCartWorkflow(container).run({ input: { id: cartId } });
}

/** Runs the plugin's scheduled job now. */
export async function poll(container: MedusaContainer): Promise<void> {
  await container.resolve(Modules.WORKFLOW_ENGINE).run("job-payintent-poll", {});
}

/** Refunds part of a payment, as Medusa's admin does. */
export async function refund(container: MedusaContainer, cartId: string, amount: string): Promise<void> {
  const { payment_collection: collection } = await readCart(container, cartId);
  const payment = required(collection?.payments?.[0]);
  await refundPaymentWorkflow(container).run({ input: { payment_id: payment.id, amount: MathBN.convert(amount) } });
}

/** Returns the status of an order. */
export async function standing(container: MedusaContainer, cartId: string) {
  const { payment_collection: collection } = await readCart(container, cartId);
  const refunds = (collection?.payments ?? []).flatMap((payment) => payment.refunds ?? []);
  const refunded = MathBN.add(0, ...refunds.map((refundEntry) => refundEntry.raw_amount));
  const handedOut = placements.get(cartId) ?? 0;
  return { status: handedOut ? "paid" : "waiting", handed_out: handedOut, refunded: refunded.toFixed() };
}

/** Delivers the goods of an order that Medusa has placed. */
export async function handOut(container: MedusaContainer, orderId: string): Promise<void> {
  const { data } = await container.resolve(ContainerRegistrationKeys.QUERY).graph({
    entity: "order_cart",
    fields: ["cart_id"],
    filters: { order_id: orderId },
  });
  const cartId = required(data[0]).cart_id as string;
  placements.set(cartId, (placements.get(cartId) ?? 0) + 1);
}

async function createCart(container: MedusaContainer): Promise<string> {
  const { result } = await createCartWorkflow(container).run({
    input: { region_id: await region(container), email: "buyer@example.com", items: [item("Book", 20)] },
  });
  return result.id;
}

function item(title: string, price: number) {
  return { title, quantity: 1, unit_price: price, requires_shipping: false, metadata: { id: randomUUID() } };
}

async function region(container: MedusaContainer): Promise<string> {
  return container.resolve(Modules.LOCKING).execute("region", async () => {
    const [existingRegion] = await container.resolve(Modules.REGION).listRegions({ currency_code: CURRENCY });
    if (existingRegion) return existingRegion.id;
    const regions = [{ name: "Thailand", currency_code: CURRENCY, countries: ["th"], payment_providers: [PROVIDER] }];
    const { result } = await createRegionsWorkflow(container).run({ input: { regions } });
    return required(result[0]).id;
  }, LOCK);
}

async function readCart(container: MedusaContainer, id: string): Promise<Cart> {
  const { data } = await container.resolve(ContainerRegistrationKeys.QUERY).graph({
    entity: "cart",
    fields: [
      "id",
      "payment_collection.*",
      "payment_collection.payment_sessions.*",
      "payment_collection.payments.*",
      "payment_collection.payments.refunds.*",
    ],
    filters: { id },
  });
  return required(data[0] as Cart | undefined);
}

async function view(container: MedusaContainer, cartId: string): Promise<OrderView | undefined> {
  const { payment_collection: collection } = await readCart(container, cartId);
  const session = collection?.payment_sessions?.[0];
  if (!session) return undefined;
  const { id, amount, currency } = session.data;
  return { order_id: cartId, payment_id: required(id), amount: required(amount), currency: required(currency) };
}

function required<T>(value: T | undefined | null): T {
  if (value === undefined || value === null) throw new Error("Medusa's response does not contain a required value");
  return value;
}
