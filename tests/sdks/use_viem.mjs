// Derives deposit addresses with viem and with the checkout page's script; prints them as JSON.
// Arguments: viem's module, the page's script. Standard input: lists of a uuid, a factory and a forwarder.

import { text } from "node:stream/consumers";

const [viem, page] = await Promise.all(process.argv.slice(2).map((path) => import(path)));
const addresses = JSON.parse(await text(process.stdin)).map(([uuid, from, forwarder]) => {
  const code = ["0x602d3d8160093d39f3363d3d373d3d3d363d73", forwarder, "0x5af43d82803e903d91602b57fd5bf3"];
  const bytecode = viem.concatHex(code);
  const salt = viem.padHex(uuid, { dir: "right", size: 32 });
  const bytecodeHash = viem.keccak256(bytecode);
  return {
    create: viem.getContractAddress({ opcode: "CREATE2", from, salt, bytecode }),
    create2: viem.getCreate2Address({ from, salt, bytecodeHash }),
    page: page.deriveAddress(uuid, from, bytecodeHash),
    code_hash: bytecodeHash,
  };
});
console.log(JSON.stringify(addresses));
