/** Medusa with the plugin, in the minimal configuration for the tests. */

import { defineConfig } from "@medusajs/framework/utils";

import { required } from "./src/lib/settings";

const providers = [
  {
    resolve: "payintent-medusa/providers/payintent",
    id: "shop",
    options: {
      baseUrl: required("PAYINTENT_URL"),
      apiKey: required("PAYINTENT_API_KEY"),
      secrets: required("PAYINTENT_WEBHOOK_SECRET"),
    },
  },
];

module.exports = defineConfig({
  admin: { disable: true },
  projectConfig: {
    databaseUrl: required("DATABASE_URL"),
    databaseDriverOptions: { ssl: false },
    http: { storeCors: "", adminCors: "", authCors: "", jwtSecret: "of a test", cookieSecret: "of a test" },
  },
  plugins: [{ resolve: "payintent-medusa", options: {} }],
  modules: [{ resolve: "@medusajs/medusa/payment", options: { providers } }],
});
