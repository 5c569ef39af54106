/** Goods go out where Medusa says that an order is placed. */

import type { SubscriberArgs, SubscriberConfig } from "@medusajs/framework";

import { handOut } from "../lib/shop";

export default async function placed({ event, container }: SubscriberArgs<{ id: string }>): Promise<void> {
  await handOut(container, event.data.id);
}

export const config: SubscriberConfig = { event: "order.placed" };
