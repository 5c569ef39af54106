// Recomputes a deposit address, so that the page does not have to trust the address in the response.
// The implementation follows `sdks/typescript/src/deposits.ts`.
// @ts-check

const RATE = 136; // bytes per block of Keccak-256

/**
 * Returns the address to which a factory deploys, in lower case (EIP-1014). The arguments are
 * hexadecimal, with the prefix `0x`.
 * @param {string} uuid 16 bytes
 * @param {string} factory 20 bytes
 * @param {string} codeHash 32 bytes
 */
export function deriveAddress(uuid, factory, codeHash) {
  const data = new Uint8Array(85);
  data[0] = 0xff;
  data.set(decode(factory, 20), 1);
  data.set(decode(uuid, 16), 21);
  data.set(decode(codeHash, 32), 53);
  const bytes = [...keccak256(data).subarray(12)];
  return `0x${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * @param {string} text
 * @param {number} size
 */
function decode(text, size) {
  const pairs = /^0x[0-9a-f]*$/i.test(text) ? (text.slice(2).match(/../g) ?? []) : [];
  if (pairs.length !== size || text.length !== 2 + 2 * size) throw new TypeError(`not ${size} bytes`);
  return Uint8Array.from(pairs, (pair) => Number.parseInt(pair, 16));
}

/**
 * Hashes up to 135 bytes with Ethereum's Keccak-256, whose padding differs from SHA3-256.
 * @param {Uint8Array} data
 */
function keccak256(data) {
  const state = new BigUint64Array(25); // lane (x, y) is `state[x + 5 * y]`
  const block = new Uint8Array(state.buffer, 0, RATE); // every browser is little-endian
  block.set(data);
  block[data.length] = 1;
  block[RATE - 1] = 0x80;
  permute(state);
  return block.slice(0, 32);
}

/**
 * Applies Keccak-f[1600]. The array truncates stored values to 64 bits.
 * @param {any} state
 */
function permute(state) {
  let register = 1;
  for (let round = 0; round < 24; round += 1) {
    // theta
    /** @type {any[]} */
    const columns = [0, 1, 2, 3, 4].map(
      (x) => state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20],
    );
    for (let lane = 0; lane < 25; lane += 1) {
      state[lane] ^= columns[(lane + 4) % 5] ^ rotate(columns[(lane + 1) % 5], 1);
    }
    // rho and pi
    let [x, y, value] = [1, 0, state[1]];
    for (let step = 0; step < 24; step += 1) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      const rotation = rotate(value, (((step + 1) * (step + 2)) / 2) % 64);
      [value, state[x + 5 * y]] = [state[x + 5 * y], rotation];
    }
    // chi
    for (let row = 0; row < 25; row += 5) {
      const lanes = state.slice(row, row + 5);
      for (let index = 0; index < 5; index += 1) {
        state[row + index] = lanes[index] ^ (~lanes[(index + 1) % 5] & lanes[(index + 2) % 5]);
      }
    }
    // iota
    for (let bit = 0; bit < 7; bit += 1) {
      register = ((register << 1) ^ ((register >> 7) * 0x71)) % 256;
      if (register & 2) state[0] ^= 1n << ((1n << BigInt(bit)) - 1n);
    }
  }
}

/**
 * @param {any} lane
 * @param {number} bits
 */
function rotate(lane, bits) {
  return (lane << BigInt(bits)) | (lane >> BigInt(64 - bits));
}
