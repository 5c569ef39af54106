const POLL_EVERY_MS = 60_000;

/** Next.js calls this once when the server starts. */
export async function register(): Promise<void> {
  if (process.env["NEXT_RUNTIME"] !== "nodejs") return;
  const { poll } = await import("./lib/payments");
  setInterval(poll, POLL_EVERY_MS);
}
