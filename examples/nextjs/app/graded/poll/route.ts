import { isGraded, notServed } from "../../../lib/graded";
import { poll } from "../../../lib/payments";

/** Runs the scheduled poll now. */
export async function POST() {
  if (!isGraded()) return notServed();
  await poll();
  return new Response(null, { status: 204 });
}
