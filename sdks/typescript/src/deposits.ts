/**
 * Verifies deposit addresses against a factory that you have stored.
 *
 * A deposit address depends only on the deposit factory, on the hash of the code that the factory deploys, and on the
 * session's `pay_uuid`. When you go live, store the response from `GET /v1/chains/{slug}`, so that a compromised
 * installation cannot redirect deposits unnoticed.
 */

import { PayintentError } from "./errors.js";
import type { Chain, DepositFactory, OnchainSession } from "./onchain.js";

/** A stored factory does not derive this address for the session. Do not send money there. */
export class WrongDepositAddressError extends PayintentError {}

/**
 * Returns the session's deposit address if the factory of a stored chain derives it.
 *
 * Pass chains that you have stored, not chains that you have just read. After the operator has replaced a factory, pass
 * the old and the new chain. The receiver and the EIP-681 link must match too. Throws
 * `WrongDepositAddressError` if anything differs, and `TypeError` if the session is not a deposit
 * session or has a malformed `pay_uuid`.
 */
export function verifyDepositAddress(session: OnchainSession, ...chains: Pick<Chain, "network_id" | "deposits">[]): string {
  const { id, deposit_address: address, pay_uuid, chain, links } = session;
  if (address === undefined) throw new TypeError(`${id} is not a deposit session`);
  const { network_id } = chain;
  if (!chains.some((storedChain) => storedChain.network_id === network_id && storedChain.deposits && matches(session, storedChain.deposits))) {
    throw new WrongDepositAddressError(
      `${address} is not a deposit address of a stored factory for ${pay_uuid} on network ${network_id}, or the ` +
        "receiver differs. Do not send money there.",
    );
  }
  const { eip681: link } = links;
  const expected = eip681Url(session);
  if (link !== undefined && link.toLowerCase() !== expected.toLowerCase()) {
    throw new WrongDepositAddressError(`the EIP-681 link is ${link} instead of ${expected}`);
  }
  return address;
}

function matches({ pay_uuid, receiver, deposit_address }: OnchainSession, factory: DepositFactory): boolean {
  const expected = deriveDepositAddress(pay_uuid, factory.factory_address, factory.init_code_hash);
  const isReceiver = String(receiver).toLowerCase() === factory.receiver.toLowerCase();
  return isReceiver && String(deposit_address).toLowerCase() === expected;
}

function eip681Url({ token, chain, deposit_address, remaining }: OnchainSession): string {
  const amount = remaining?.amount_smallest_unit ?? "";
  return `ethereum:${token.address}@${chain.network_id}/transfer?address=${deposit_address}&uint256=${amount}`;
}

/**
 * Returns a session's deposit address, in lower case.
 *
 * Throws a `TypeError` unless the arguments are 16, 20 and 32 bytes in hex with the prefix `0x`.
 */
export function deriveDepositAddress(payUuid: string, factoryAddress: string, initCodeHash: string): string {
  const data = new Uint8Array(85);
  data[0] = 0xff;
  data.set(decode("factoryAddress", factoryAddress, 20), 1);
  data.set(decode("payUuid", payUuid, 16), 21);
  data.set(decode("initCodeHash", initCodeHash, 32), 53);
  return `0x${[...keccak256(data).subarray(12)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function decode(name: string, text: string, size: number): Uint8Array {
  if (!new RegExp(`^0x[0-9a-fA-F]{${2 * size}}$`).test(text)) {
    throw new TypeError(`${name} must be 0x followed by ${2 * size} hex digits`);
  }
  return Uint8Array.from({ length: size }, (_, index) => parseInt(text.slice(2 + 2 * index, 4 + 2 * index), 16));
}

const RATE = 136; // bytes per block
const MASK = (1n << 64n) - 1n;

/** Hashes up to 135 bytes with Ethereum's Keccak-256, whose padding differs from SHA3-256. */
function keccak256(data: Uint8Array): Uint8Array {
  const block = new Uint8Array(RATE);
  block.set(data);
  block[data.length] = 1;
  block[RATE - 1]! |= 0x80;
  const view = new DataView(block.buffer);
  const state = Array.from({ length: 25 }, (_, lane) => (lane < RATE / 8 ? view.getBigUint64(8 * lane, true) : 0n));
  permute(state);
  const digest = new DataView(new ArrayBuffer(32));
  for (let lane = 0; lane < 4; lane += 1) digest.setBigUint64(8 * lane, state[lane]!, true);
  return new Uint8Array(digest.buffer);
}

/** Applies Keccak-f[1600]; lane (x, y) is `state[x + 5 * y]`. */
function permute(state: bigint[]): void {
  let register = 1;
  for (let round = 0; round < 24; round += 1) {
    // theta
    const columns = [0, 1, 2, 3, 4].map(
      (x) => state[x]! ^ state[x + 5]! ^ state[x + 10]! ^ state[x + 15]! ^ state[x + 20]!,
    );
    for (let lane = 0; lane < 25; lane += 1) {
      state[lane]! ^= columns[(lane + 4) % 5]! ^ rotate(columns[(lane + 1) % 5]!, 1);
    }
    // rho and pi
    let [x, y, value] = [1, 0, state[1]!];
    for (let step = 0; step < 24; step += 1) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      const rotation = rotate(value, (((step + 1) * (step + 2)) / 2) % 64);
      [value, state[x + 5 * y]] = [state[x + 5 * y]!, rotation];
    }
    // chi
    for (let row = 0; row < 25; row += 5) {
      const lanes = state.slice(row, row + 5);
      for (let x = 0; x < 5; x += 1) state[row + x] = lanes[x]! ^ (~lanes[(x + 1) % 5]! & MASK & lanes[(x + 2) % 5]!);
    }
    // iota
    for (let bit = 0; bit < 7; bit += 1) {
      register = ((register << 1) ^ ((register >> 7) * 0x71)) % 256;
      if (register & 2) state[0]! ^= 1n << ((1n << BigInt(bit)) - 1n);
    }
  }
}

function rotate(lane: bigint, bits: number): bigint {
  return ((lane << BigInt(bits)) | (lane >> BigInt(64 - bits))) & MASK;
}
