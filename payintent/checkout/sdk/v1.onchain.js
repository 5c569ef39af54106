// The wallets' part of the browser SDK: v1.js loads it when a wallet is asked for.
// The service gives every call ready to send; the chain alone says what has become of it.
// @ts-check
(() => {
  "use strict";

  /** @typedef {import("./v1").Eip1193Provider} Provider */
  /** @typedef {import("./v1").Onchain} Onchain */

  const SESSION_ID = /^sess_[0-9A-Za-z]{22}$/;
  const REJECTED = 4001;
  const FIND_MS = 300; // wallets have so long to announce themselves
  const MINED_MS = 180_000;
  const LOOK_MS = 1_000;
  const ANSWER_MS = 10_000;
  const LOOKS = 6; // a wallet's node may lag behind the one that gave a receipt

  /** @type {import("./v1").WalletPart} */
  function wallets({ fail, need, sleep, once, read, halt }) {
    /** Calls a wallet, and words its refusals. @param {Provider} provider @param {string} method @param {unknown[]} params @param {string} code */
    async function ask(provider, method, params, code) {
      try {
        return await provider.request({ method, params });
      } catch (/** @type {any} */ cause) {
        const { message, data } = cause ?? {};
        const codes = [cause?.code, data?.originalError?.code];
        if (/insufficient funds/i.test(message)) code = "INSUFFICIENT_FUNDS";
        if (codes.some((one) => one === REJECTED || one === "ACTION_REJECTED")) code = "USER_REJECTED";
        return fail(code, message, { cause });
      }
    }

    /** @type {Onchain["discover"]} */
    async function discover({ timeoutMs: patience = FIND_MS } = {}) {
      const found = new Map();
      /** @param {any} event */
      const add = ({ detail }) => found.set(detail.info.uuid, { ...detail.info, provider: detail.provider });
      addEventListener("eip6963:announceProvider", add);
      dispatchEvent(new Event("eip6963:requestProvider"));
      await sleep(patience);
      removeEventListener("eip6963:announceProvider", add);
      const provider = /** @type {any} */ (window).ethereum;
      if (!found.size && provider) return [{ uuid: "window", name: "Browser wallet", provider }];
      return [...found.values()];
    }

    /** @type {Onchain["connect"]} */
    async function connect(provider) {
      const code = "WALLET_INIT_FAILED";
      if (!provider?.request) fail(code);
      const [address] = (await ask(provider, "eth_requestAccounts", [], code)) ?? [];
      if (!address) fail(code);
      return { address, chainId: +(await ask(provider, "eth_chainId", [], code)) };
    }

    /** @type {Onchain["session"]} */
    const session = async (id) =>
      SESSION_ID.test(need(id, "sessionId")) ? read(`/onchain/sessions/${id}`, "steps") : fail("INVALID_FORMAT");

    /** @type {Onchain["ensureChain"]} */
    async function ensureChain(provider, { network_id, wallet_chain }) {
      const code = "WRONG_CHAIN";
      // A wallet may not know the chain, or add it and stay where it was.
      for (const verb of ["switch", "add", "switch", ""]) {
        if (+(await ask(provider, "eth_chainId", [], code)) === network_id) return;
        const asked = verb === "add" ? wallet_chain : { chainId: wallet_chain.chainId };
        if (!verb) fail(code);
        try {
          await ask(provider, `wallet_${verb}EthereumChain`, [asked], code);
        } catch (/** @type {any} */ error) {
          if (error.code !== code) throw error;
        }
      }
    }

    /** @type {Record<string, ReturnType<Onchain["pay"]> | undefined>} */
    const paying = {}; // a second click must not pay twice

    /** @type {Onchain["pay"]} */
    const pay = async (how) =>
      (paying[need(how.session, "session").id] ??= payOnce(how).finally(() => delete paying[how.session.id]));

    /** @type {Onchain["pay"]} */
    async function payOnce({ session: bill, provider, signal }) {
      const { address } = await connect(provider);
      const { id, chain, checks, steps } = bill;
      const { chainId } = chain.wallet_chain;
      const wanted = BigInt(bill.amount_smallest_unit);
      const code = "ONCHAIN_TX_FAILED";
      await ensureChain(provider, chain);
      /** @param {import("./v1").OnchainCheck} [check] */
      const number = async ({ method, to, data } = {}) => {
        const call = { to, data: data?.replace("{payer}", address.slice(2).toLowerCase()) };
        const answer = await ask(provider, method ?? "eth_call", [method ? address : call, "latest"], code);
        return /^0x./.test(answer) ? BigInt(answer) : fail("WRONG_CHAIN"); // nothing of ours is here
      };
      /** @param {string} when */
      const isDue = async (when) => {
        if (when === "always") return true;
        const allowed = await number(checks.allowance);
        return allowed < wanted && (when === "allowance_lt_amount" || allowed > 0n);
      };

      let txHash = null;
      for (const { kind, when, to, value, data } of steps) {
        // Somebody else may have paid while a permission took its time.
        if (await number(checks.already_paid)) return { txHash: null };
        if ((await number(checks.balance)) < wanted) fail("INSUFFICIENT_FUNDS");
        if (!(await isDue(when))) continue;
        // A permission takes its time, and a wallet may be switched meanwhile.
        if (!(await session(id)).payable) fail("INVALID_CHECKOUT_STATE");
        await ensureChain(provider, chain);
        halt(signal);
        txHash = await ask(provider, "eth_sendTransaction", [{ from: address, to, value, data, chainId }], code);
        const body = { tx_hash: txHash, step: kind };
        // A hint: a payment is found on the chain all the same.
        once(`/onchain/sessions/${id}/transactions`, "step", { method: "POST", body }).catch(() => {});
        // A node that stumbles must not make a transaction look lost, and a silent one holds up nothing.
        /** @param {Promise<any>} asked */
        const settled = (asked) => Promise.race([asked.catch(() => 0), sleep(ANSWER_MS)]);
        /** @param {string} what @param {unknown[]} params */
        const tell = (what, params) => settled(ask(provider, `eth_getTransaction${what}`, params, code));
        const hasHappened = async () => (when === "always" ? (await number(checks.already_paid)) > 0n : !(await isDue(when)));
        let nonce;
        let replaced = 0;
        for (const until = Date.now() + MINED_MS; Date.now() < until; await sleep(LOOK_MS)) {
          halt(signal);
          const receipt = await tell("Receipt", [txHash]);
          if (+receipt?.status === 0) fail(code);
          if (receipt) break;
          // A wallet may put another one in its place, to speed it up or to cancel it.
          const happened = await settled(hasHappened());
          const known = await tell("ByHash", [txHash]);
          nonce ??= known?.nonce;
          if (nonce && +(await tell("Count", [address, "latest"])) > +nonce) replaced += 1;
          if (happened) {
            if (known === null) txHash = null;
            break;
          }
          if (replaced > LOOKS) fail(code, "the wallet replaced or cancelled it");
        }
        for (let looks = LOOKS; when !== "always" && (await isDue(when)); looks -= 1) {
          if (!looks) fail(code, "less was allowed than is to be paid");
          await sleep(LOOK_MS);
        }
      }
      return { txHash };
    }

    return { discover, connect, session, ensureChain, pay };
  }

  Object.assign(window.PayIntent, { wallets });
})();
