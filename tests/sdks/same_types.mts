// Compiles only if the SDK's types have the contract's fields and accept all of its responses.

import type * as sdk from "payintent-sdk";
import type { components, operations } from "./schema.d.ts";

type Schemas = components["schemas"];

/** The SDK's type of each schema. */
export interface Types {
  AdvancedTestClock: sdk.AdvancedTestClock;
  Balance: sdk.Balance;
  BalanceList: sdk.BalanceList;
  Cancelled: sdk.Cancelled;
  CancelledPayment: sdk.CancelledPayment;
  Case: sdk.Case;
  CaseDispute: sdk.CaseDispute;
  CaseList: sdk.Page<sdk.Case>;
  Catalog: sdk.Catalog;
  CatalogCountry: sdk.CatalogCountry;
  CatalogCurrency: sdk.CatalogCurrency;
  Chain: sdk.Chain;
  ChainFinality: sdk.ChainFinality;
  ChainToken: sdk.ChainToken;
  CompletedPayment: sdk.CompletedPayment;
  Confirmations: sdk.Confirmations;
  CreatePayment: sdk.CreatePayment;
  CreatePaymentLink: sdk.CreatePaymentLink;
  CreateRefund: sdk.CreateRefund;
  CreatedPayment: sdk.CreatedPayment;
  DeclineTestPayment: sdk.DeclineTestPayment;
  DepositAmount: sdk.DepositAmount;
  DepositFactory: sdk.DepositFactory;
  Dispute: sdk.Dispute;
  DisputeList: sdk.Page<sdk.Dispute>;
  DisputeTestPayment: sdk.DisputeTestPayment;
  TransferToTestPayment: sdk.TransferToTestPayment;
  EventDelivery: sdk.EventDelivery;
  EventFeed: sdk.EventFeed;
  ExpiredPayment: sdk.ExpiredPayment;
  FailedPayment: sdk.FailedPayment;
  FeedEvent: sdk.FeedEvent;
  FraudDecision: sdk.FraudDecision;
  MovedTimes: sdk.MovedTimes;
  OnchainSession: sdk.OnchainSession;
  PayTestPayment: sdk.PayTestPayment;
  Payment: sdk.Payment;
  PaymentCancelled: sdk.PaymentCancelled;
  PaymentCancelledData: sdk.PaymentCancelledData;
  PaymentCompleted: sdk.PaymentCompleted;
  PaymentCompletedData: sdk.PaymentCompletedData;
  PaymentExpired: sdk.PaymentExpired;
  PaymentExpiredData: sdk.PaymentExpiredData;
  PaymentFailed: sdk.PaymentFailed;
  PaymentFailedData: sdk.PaymentFailedData;
  PaymentList: sdk.Page<sdk.Payment>;
  PaymentLink: sdk.PaymentLink;
  PaymentLinkList: sdk.Page<sdk.PaymentLink>;
  Refund: sdk.Refund;
  RefundList: sdk.Page<sdk.Refund>;
  ReplayedEvent: sdk.ReplayedEvent;
  SessionChain: sdk.SessionChain;
  SessionToken: sdk.SessionToken;
  SessionTransaction: sdk.SessionTransaction;
  Statement: sdk.Statement;
  StatementLine: sdk.StatementLine;
  StatementList: sdk.Page<sdk.Statement>;
  StatementWithLines: sdk.StatementWithLines;
  TestClock: sdk.TestClock;
  WalletLinks: sdk.WalletLinks;
}

/** The SDK's parameters of each operation that has a query. */
export interface Queries {
  getStatement: sdk.PageParameters;
  listCases: sdk.ListCases;
  listDisputes: sdk.ListDisputes;
  listEvents: sdk.ListEvents;
  listPaymentLinks: sdk.PageParameters;
  listPayments: sdk.ListPayments;
  listRefunds: sdk.PageParameters;
  listStatements: sdk.ListStatements;
  listUpdatedRefunds: sdk.ListUpdatedRefunds;
}

type Query<Name extends keyof Queries> = NonNullable<operations[Name]["parameters"]["query"]>;
type SameFields<Ours, Theirs> = [keyof Ours, keyof Theirs] extends [keyof Theirs, keyof Ours] ? "same" : never;
type Accepts<Ours, Theirs> = [Theirs] extends [Ours] ? "same" : never;
/** Not compared completely: the SDK reports a denied payment as an error. */
type NotCompared = "CreatedPayment";

declare const fields: { [Name in keyof Types]: SameFields<Types[Name], Schemas[Name]> };
declare const answers: {
  [Name in Exclude<keyof Types, NotCompared>]: Accepts<Types[Name], Schemas[Name]>;
};
declare const queries: { [Name in keyof Queries]: SameFields<Queries[Name], Query<Name>> };

export const sameFields: Record<keyof Types, "same"> = fields;
export const acceptedAnswers: Record<Exclude<keyof Types, NotCompared>, "same"> = answers;
export const sameQueries: Record<keyof Queries, "same"> = queries;
