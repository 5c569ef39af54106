"""Every operation on one screen: `merchant.create` is a command and a route of the operator.

Except `reconcile`: its file is on the machine where the command is typed.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from payintent.operations.base import ChangeOperation, ReadOperation

OperationType = type[ReadOperation[Any]] | type[ChangeOperation[Any]]

#: The module here and the class of each operation, by its action.
_CLASSES: Mapping[str, str] = {
    "merchant.create": "merchants.CreateMerchant",
    "merchant.list": "merchant_list.ListMerchants",
    "merchant.show": "merchants.ShowMerchant",
    "merchant.profile": "merchants.SetMerchantProfile",
    "merchant.set-callback-url": "merchants.SetCallbackUrl",
    "merchant.set-refund-threshold": "refund_threshold.SetRefundThreshold",
    "merchant.rotate-secret": "merchants.RotateCallbackSecret",
    "merchant.secrets": "merchant_list.ListCallbackSecrets",
    "merchant.checklist": "merchant_list.ShowChecklist",
    "merchant.activation": "activation.ShowActivation",
    "merchant.request": "activation.RequestActivation",
    "merchant.apply": "activation.ApplyActivation",
    "merchant.validate": "activation.ValidateActivation",
    "merchant.activate": "activation.ActivateMerchant",
    "merchant.suspend": "activation.SuspendMerchant",
    "merchant.resume": "activation.ResumeMerchant",
    "merchant.invite": "members.InviteMember",
    "merchant.members": "members.ListMembers",
    "merchant.remove-member": "members.RemoveMember",
    "key.issue": "keys.IssueApiKey",
    "key.list": "keys.ListApiKeys",
    "key.revoke": "keys.RevokeApiKey",
    "operator.issue": "operators.IssueOperatorToken",
    "operator.set-role": "operators.SetRole",
    "operator.extend": "operators.ExtendToken",
    "operator.replace": "operators.ReplaceToken",
    "operator.list": "operators.ListOperatorTokens",
    "operator.revoke": "operators.RevokeOperatorToken",
    "operator.identities": "identities.ListIdentities",
    "operator.block": "identities.BlockIdentity",
    "operator.unblock": "identities.UnblockIdentity",
    "approval.list": "approvals.ListApprovals",
    "approval.show": "approvals.ShowApproval",
    "approval.approve": "approvals.Approve",
    "approval.reject": "approvals.Reject",
    "account.add": "accounts.AddAccount",
    "account.list": "accounts.ListAccounts",
    "account.show": "accounts.ShowAccount",
    "account.check": "accounts.CheckAccount",
    "account.change": "accounts.ChangeAccount",
    "account.enable": "accounts.EnableAccount",
    "account.disable": "accounts.DisableAccount",
    "method.add": "payment_methods.AddPaymentMethod",
    "method.list": "payment_methods.ListPaymentMethods",
    "method.change": "payment_methods.ChangePaymentMethod",
    "method.enable": "payment_methods.EnablePaymentMethod",
    "method.disable": "payment_methods.DisablePaymentMethod",
    "provider.health": "providers.ListGatewayOutages",
    "provider.errors": "providers.ListGatewayErrors",
    "provider.list": "providers.ListProviders",
    "provider.enable": "providers.EnableProvider",
    "provider.disable": "providers.DisableProvider",
    "provider.rename": "providers.RenameProvider",
    "tax.set": "tax_rates.SetTaxRate",
    "tax.list": "tax_rates.ListTaxRates",
    "tax.remove": "tax_rates.RemoveTaxRate",
    "restriction.add": "restrictions.AddRestriction",
    "restriction.list": "restrictions.ListRestrictions",
    "restriction.lift": "restrictions.LiftRestriction",
    "fraud.add": "fraud.AddFraudRule",
    "fraud.list": "fraud.ListFraudRules",
    "fraud.remove": "fraud.RemoveFraudRule",
    "fraud.decisions": "fraud.ListFraudDecisions",
    "limit.set": "rate_limits.SetRateLimit",
    "limit.list": "rate_limits.ListRateLimits",
    "limit.clear": "rate_limits.ClearRateLimit",
    "chain.list": "chains.ListChains",
    "chain.set": "chains.SetChain",
    "chain.set-token": "tokens.SetToken",
    "chain.add-contract": "chains.AddContract",
    "chain.retire-contract": "chains.RetireContract",
    "chain.resume": "chains.ResumeChain",
    "quotes.explain": "quotes.ExplainQuotes",
    "case.list": "cases.ListCases",
    "case.show": "cases.ShowCase",
    "case.resolve": "cases.ResolveCase",
    "payment.list": "search_payments.ListPayments",
    "payment.search": "search_payments.SearchPayments",
    "payment.show": "payment_details.ShowPayment",
    "payment.timeline": "payment_details.ShowTimeline",
    "payment.cancel": "payments.CancelPayment",
    "payment.refund": "payments.RefundPayment",
    "payment.end": "payments.EndPayment",
    "refund.list": "refunds.ListRefunds",
    "refund.show": "refunds.ShowRefund",
    "refund.approve": "refunds.ApproveRefund",
    "refund.reject": "refunds.RejectRefund",
    "refund.resend": "refunds.ResendRefund",
    "refund.ask-first": "refunds.AskRefundsFirst",
    "dispute.list": "disputes.ListDisputes",
    "payer.export": "payers.ExportPayer",
    "payer.erase": "payers.ErasePayer",
    "retention.show": "retention.ShowRetention",
    "ledger.show": "ledger.ShowLedger",
    "ledger.check": "ledger.CheckLedger",
    "ledger.backfill": "ledger.BackfillLedger",
    "ledger.adjust": "ledger_adjustment.AdjustLedger",
    "payout.record": "payouts.RecordPayout",
    "payout.import": "payouts.ImportPayouts",
    "payout.list": "payouts.ListPayouts",
    "payout.reverse": "payouts.ReversePayout",
    "gateway-payout.record": "gateway_payouts.RecordGatewayPayout",
    "gateway-payout.list": "gateway_payouts.ListGatewayPayouts",
    "gateway-payout.reverse": "gateway_payouts.ReverseGatewayPayout",
    "statement.list": "statements.ListStatements",
    "statement.show": "statements.ShowStatement",
    "statement.export": "statements.ExportStatement",
    "reconciliation.list": "reconciliation_runs.ListReconciliationRuns",
    "reconciliation.show": "reconciliation_runs.ShowReconciliationRun",
    "reconciliation.retry": "reconciliation_runs.RetryReconciliationRun",
    "keyring.show": "keyring.ShowKeyring",
    "keyring.rotate": "keyring.RotateKeyring",
    "audit.list": "audit_log.ListAuditEntries",
    "webhooks.list": "webhooks.ListDeliveries",
    "webhooks.endpoints": "webhooks.ListEndpoints",
    "webhooks.show": "webhooks.ShowEvent",
    "webhooks.replay": "webhooks.ReplayEvent",
    "webhooks.replay-missed": "webhooks.ReplayMissedEvents",
}


class _Operations(Mapping[str, OperationType]):
    """Operations by action, each imported when it is looked up: a command needs few of them."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes

    def __getitem__(self, action: str) -> OperationType:
        module, _, name = self._classes[action].partition(".")
        return getattr(import_module(f"{__package__}.{module}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, action: object) -> bool:
        return action in self._classes


OPERATIONS: Mapping[str, OperationType] = _Operations(_CLASSES)


def load_operations() -> None:
    """Import all operations: a process that serves does it before it accepts requests."""
    for action in OPERATIONS:
        OPERATIONS[action]
