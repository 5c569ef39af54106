/** Delivers the goods when Medusa has placed an order. */

import type { SubscriberArgs, SubscriberConfig } from "@medusajs/framework";

import { handOut } from "../lib/shop";

export default async function placed({ event, container }: SubscriberArgs<{ id: string }>): Promise<void> {
  await handOut(container, event.data.id);
}

export const config: SubscriberConfig = { event: "order.placed" };
