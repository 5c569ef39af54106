// Prints the methods of a client as JSON: "payments.create" and so on.

import { Client } from "payintent-sdk";

const client = new Client({ apiKey: "sk_test_x", baseUrl: "http://localhost" });
const methods = Object.entries(client).flatMap(([resource, found]) =>
  Object.getOwnPropertyNames(Object.getPrototypeOf(found))
    .filter((name) => name !== "constructor")
    .map((name) => `${resource}.${name}`),
);
console.log(JSON.stringify(methods));
