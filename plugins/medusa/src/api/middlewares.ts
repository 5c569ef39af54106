/** Limits the size of webhook bodies, and preserves their raw bytes. */

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
