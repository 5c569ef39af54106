/** What `medusa-config.ts` names as a provider of Medusa's payment module. */

import { ModuleProvider, Modules } from "@medusajs/framework/utils";

import { PayintentProvider } from "./provider";

export default ModuleProvider(Modules.PAYMENT, { services: [PayintentProvider] });
export type { PayintentOptions } from "./provider";
