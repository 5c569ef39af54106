import { randomUUID } from "node:crypto";

export const dynamic = "force-dynamic"; // each page view uses a new order ID

export default function Book() {
  return (
    <>
      <h1>Tides of the Chao Phraya</h1>
      <form method="post" action={`/buy/${randomUUID()}`}>
        <button>Buy for 1590.00 THB</button>
      </form>
    </>
  );
}
