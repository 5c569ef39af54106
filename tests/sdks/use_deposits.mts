// Derives and verifies deposit addresses; prints each address, or the name of the error.
// Standard input, as JSON: lists of a uuid, a factory and a hash, and lists of a session and stored chains.

import { deriveDepositAddress, verifyDepositAddress } from "payintent-sdk";
import type { Chain, OnchainSession } from "payintent-sdk";

declare const process: { stdin: AsyncIterable<Uint8Array> };

function call(act: () => string): string {
  try {
    return act();
  } catch (error) {
    return (error as Error).name;
  }
}

let input = "";
for await (const chunk of process.stdin) input += new TextDecoder().decode(chunk);
const [derivations, sessions] = JSON.parse(input) as [[string, string, string][], [OnchainSession, Chain[]][]];
const derived = derivations.map((derivation) => call(() => deriveDepositAddress(...derivation)));
const verified = sessions.map(([session, chains]) => call(() => verifyDepositAddress(session, ...chains)));
console.log(JSON.stringify([derived, verified]));
