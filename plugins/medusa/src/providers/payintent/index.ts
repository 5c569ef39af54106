/** The provider that `medusa-config.ts` adds to Medusa's payment module. */

import { ModuleProvider, Modules } from "@medusajs/framework/utils";

import { PayintentProvider } from "./provider";

export default ModuleProvider(Modules.PAYMENT, { services: [PayintentProvider] });
export type { PayintentOptions } from "./provider";
