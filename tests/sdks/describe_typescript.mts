// Prints the methods of a client as JSON, such as "payments.create".

import { Client } from "payintent-sdk";

const client = new Client({ apiKey: "sk_test_x", baseUrl: "http://localhost" });
const names = Object.entries(client).flatMap(([resource, methods]) =>
  Object.getOwnPropertyNames(Object.getPrototypeOf(methods))
    .filter((name) => name !== "constructor")
    .map((name) => `${resource}.${name}`),
);
console.log(JSON.stringify(names));
