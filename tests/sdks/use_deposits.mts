// Verifies deposit addresses; prints the derived address, or the name of the error.
// Standard input: as JSON, lists of an address, a uuid, a factory and a hash.

import { deriveDepositAddress, verifyDepositAddress } from "payintent-sdk";

declare const process: { stdin: AsyncIterable<Uint8Array> };

let input = "";
for await (const chunk of process.stdin) input += new TextDecoder().decode(chunk);
const results = (JSON.parse(input) as [string, string, string, string][]).map(([address, ...facts]) => {
  try {
    verifyDepositAddress(address, ...facts);
    return deriveDepositAddress(...facts);
  } catch (error) {
    return (error as Error).name;
  }
});
console.log(JSON.stringify(results));
