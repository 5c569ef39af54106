/** What Medusa does to a webhook before its route: bounds it, and keeps it byte for byte. */

import { defineMiddlewares } from "@medusajs/framework/http";

export default defineMiddlewares({
  routes: [
    {
      matcher: "/hooks/payintent/:id",
      methods: ["POST"],
      bodyParser: { preserveRawBody: true, sizeLimit: "64kb" },
    },
  ],
});
