import { required } from "./orders";

/** Returns whether the shop serves the grader's routes, which requires SHOP_GRADED and a test key. */
export function isGraded(): boolean {
  return process.env["SHOP_GRADED"] !== undefined && required("PAYINTENT_API_KEY").startsWith("sk_test_");
}

export function notServed(): Response {
  return new Response(null, { status: 404 });
}
