/** Types of chains and on-chain sessions, whose routes do not require an API key. */

import type { Open } from "./models.js";

/** Parameters for the wallet. Pass them on unchanged. */
export type WalletParameters = object;

/** The contract that derives deposit addresses. */
export interface DepositFactory {
  factory_address: string;
  forwarder_address: string;
  init_code_hash: string;
  receiver: string;
}

/** How the chain's blocks become final. */
export interface ChainFinality {
  mode: Open<"finalized" | "confirmations">;
  typical_seconds: number;
}

/** A token that is accepted on a chain. */
export interface ChainToken extends SessionToken {
  min_amount_smallest_unit: string;
}

/** A chain, its payment contract, its deposit factory and its tokens. */
export interface Chain {
  slug: string;
  name: string;
  network_id: number;
  status: Open<"active" | "degraded" | "halted">;
  deposits: DepositFactory | null;
  native_currency: WalletParameters;
  tokens: ChainToken[];
  finality: ChainFinality;
  block_time_seconds: number;
  wallet_chain: WalletParameters;
  updated_at: string;
  contract_address?: string;
  contract_version?: number;
  contract_abi?: object[];
  pay_function?: WalletParameters;
  event_topics?: object;
}

/** An amount in the session's token. */
export interface DepositAmount {
  amount: string;
  amount_smallest_unit: string;
}

/** A session's token. The native coin has no address. */
export interface SessionToken {
  symbol: string;
  address: string | null;
  decimals: number;
  native: boolean;
  approve_zero_first: boolean;
}

/** The chain of a session. */
export interface SessionChain {
  slug: string;
  network_id: number;
  name: string;
  wallet_chain: WalletParameters;
}

/** A transaction that was posted or detected. Only deposits have an amount. */
export interface SessionTransaction {
  tx_hash: string;
  step: Open<"approve" | "pay" | "deposit">;
  state: Open<"unknown" | "pending" | "mined" | "reverted" | "foreign" | "duplicate" | "sighted" | "mismatch" | "final">;
  amount_smallest_unit?: string;
}

/** The number of blocks since the payment, and the number required for finality. */
export interface Confirmations {
  mode: Open<"finalized" | "confirmations">;
  seen: number;
  needed: number | null;
  eta_seconds: number;
}

/** Links that open wallets. */
export interface WalletLinks {
  metamask?: string;
  eip681?: string;
}

/** A payment on a chain. Only a deposit session has `deposit_address` and the following fields. */
export interface OnchainSession {
  id: string;
  status: Open<"awaiting_payment" | "submitted" | "detected" | "confirming" | "mismatch" | "partial">;
  payable: boolean;
  unpayable_reason?: Open<"closing" | "payment_seen" | "deadline_near" | "chain_halted" | "chain_not_watched">;
  pay_uuid: string;
  amount: string;
  amount_smallest_unit: string;
  token: SessionToken;
  chain: SessionChain;
  receiver: string;
  deadline: number;
  expires_at: string;
  links: WalletLinks;
  confirmations: Confirmations;
  transactions: SessionTransaction[];
  contract_address?: string;
  steps?: WalletParameters[];
  checks?: WalletParameters;
  deposit_address?: string;
  factory_address?: string;
  forwarder_address?: string;
  init_code_hash?: string;
  received?: DepositAmount;
  pending?: DepositAmount;
  remaining?: DepositAmount;
}
