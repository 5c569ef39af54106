"""All operations. Each is a command (`payintent merchant create`) and an operator route.

`reconcile` is missing: it reads a file, so it exists only as a command.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from payintent.operations.base import OperationType

#: Module path and class name of each operation, by action.
_CLASSES: Mapping[str, str] = {
    "merchant.create": "payintent.operations.merchants.CreateMerchant",
    "merchant.list": "payintent.operations.merchant_list.ListMerchants",
    "merchant.show": "payintent.operations.merchants.ShowMerchant",
    "merchant.profile": "payintent.operations.merchants.SetMerchantProfile",
    "merchant.set-callback-url": "payintent.operations.merchants.SetCallbackUrl",
    "merchant.set-refund-threshold": "payintent.operations.refund_threshold.SetRefundThreshold",
    "merchant.rotate-secret": "payintent.operations.merchants.RotateCallbackSecret",
    "merchant.secrets": "payintent.operations.merchant_list.ListCallbackSecrets",
    "merchant.checklist": "payintent.operations.merchant_list.ShowChecklist",
    "merchant.activation": "payintent.operations.activation.ShowActivation",
    "merchant.request": "payintent.operations.activation.RequestActivation",
    "merchant.apply": "payintent.operations.activation.ApplyActivation",
    "merchant.validate": "payintent.operations.activation.ValidateActivation",
    "merchant.activate": "payintent.operations.activation.ActivateMerchant",
    "merchant.suspend": "payintent.operations.activation.SuspendMerchant",
    "merchant.resume": "payintent.operations.activation.ResumeMerchant",
    "merchant.invite": "payintent.operations.members.InviteMember",
    "merchant.members": "payintent.operations.members.ListMembers",
    "merchant.remove-member": "payintent.operations.members.RemoveMember",
    "key.issue": "payintent.operations.keys.IssueApiKey",
    "key.list": "payintent.operations.keys.ListApiKeys",
    "key.revoke": "payintent.operations.keys.RevokeApiKey",
    "operator.issue": "payintent.operations.operators.IssueOperatorToken",
    "operator.set-role": "payintent.operations.operators.SetRole",
    "operator.extend": "payintent.operations.operators.ExtendToken",
    "operator.replace": "payintent.operations.operators.ReplaceToken",
    "operator.list": "payintent.operations.operators.ListOperatorTokens",
    "operator.revoke": "payintent.operations.operators.RevokeOperatorToken",
    "operator.identities": "payintent.operations.identities.ListIdentities",
    "operator.block": "payintent.operations.identities.BlockIdentity",
    "operator.unblock": "payintent.operations.identities.UnblockIdentity",
    "approval.list": "payintent.operations.approvals.ListApprovals",
    "approval.show": "payintent.operations.approvals.ShowApproval",
    "approval.approve": "payintent.operations.approvals.Approve",
    "approval.reject": "payintent.operations.approvals.Reject",
    "account.add": "payintent.operations.accounts.AddAccount",
    "account.list": "payintent.operations.accounts.ListAccounts",
    "account.show": "payintent.operations.accounts.ShowAccount",
    "account.check": "payintent.operations.accounts.CheckAccount",
    "account.change": "payintent.operations.accounts.ChangeAccount",
    "account.enable": "payintent.operations.accounts.EnableAccount",
    "account.disable": "payintent.operations.accounts.DisableAccount",
    "method.add": "payintent.operations.payment_methods.AddPaymentMethod",
    "method.list": "payintent.operations.payment_methods.ListPaymentMethods",
    "method.change": "payintent.operations.payment_methods.ChangePaymentMethod",
    "method.enable": "payintent.operations.payment_methods.EnablePaymentMethod",
    "method.disable": "payintent.operations.payment_methods.DisablePaymentMethod",
    "provider.health": "payintent.operations.providers.ListGatewayOutages",
    "provider.errors": "payintent.operations.providers.ListGatewayErrors",
    "provider.list": "payintent.operations.providers.ListProviders",
    "provider.enable": "payintent.operations.providers.EnableProvider",
    "provider.disable": "payintent.operations.providers.DisableProvider",
    "provider.rename": "payintent.operations.providers.RenameProvider",
    "tax.set": "payintent.operations.tax_rates.SetTaxRate",
    "tax.list": "payintent.operations.tax_rates.ListTaxRates",
    "tax.remove": "payintent.operations.tax_rates.RemoveTaxRate",
    "restriction.add": "payintent.operations.restrictions.AddRestriction",
    "restriction.list": "payintent.operations.restrictions.ListRestrictions",
    "restriction.lift": "payintent.operations.restrictions.LiftRestriction",
    "fraud.add": "payintent.operations.fraud.AddFraudRule",
    "fraud.list": "payintent.operations.fraud.ListFraudRules",
    "fraud.remove": "payintent.operations.fraud.RemoveFraudRule",
    "fraud.decisions": "payintent.operations.fraud.ListFraudDecisions",
    "limit.set": "payintent.operations.rate_limits.SetRateLimit",
    "limit.list": "payintent.operations.rate_limits.ListRateLimits",
    "limit.clear": "payintent.operations.rate_limits.ClearRateLimit",
    "chain.list": "payintent.operations.chains.ListChains",
    "chain.set": "payintent.operations.chains.SetChain",
    "chain.set-token": "payintent.operations.tokens.SetToken",
    "chain.add-contract": "payintent.operations.chains.AddContract",
    "chain.retire-contract": "payintent.operations.chains.RetireContract",
    "chain.resume": "payintent.operations.chains.ResumeChain",
    "quotes.explain": "payintent.operations.quotes.ExplainQuotes",
    "case.list": "payintent.operations.cases.ListCases",
    "case.show": "payintent.operations.cases.ShowCase",
    "case.resolve": "payintent.operations.cases.ResolveCase",
    "payment.list": "payintent.operations.search_payments.ListPayments",
    "payment.search": "payintent.operations.search_payments.SearchPayments",
    "payment.show": "payintent.operations.payment_details.ShowPayment",
    "payment.timeline": "payintent.operations.payment_details.ShowTimeline",
    "payment.cancel": "payintent.operations.payments.CancelPayment",
    "payment.refund": "payintent.operations.payments.RefundPayment",
    "payment.end": "payintent.operations.payments.EndPayment",
    "refund.list": "payintent.operations.refunds.ListRefunds",
    "refund.show": "payintent.operations.refunds.ShowRefund",
    "refund.approve": "payintent.operations.refunds.ApproveRefund",
    "refund.reject": "payintent.operations.refunds.RejectRefund",
    "refund.resend": "payintent.operations.refunds.ResendRefund",
    "refund.ask-first": "payintent.operations.refunds.AskRefundsFirst",
    "dispute.list": "payintent.operations.disputes.ListDisputes",
    "payer.export": "payintent.operations.payers.ExportPayer",
    "payer.erase": "payintent.operations.payers.ErasePayer",
    "retention.show": "payintent.operations.retention.ShowRetention",
    "ledger.show": "payintent.operations.ledger.ShowLedger",
    "ledger.check": "payintent.operations.ledger.CheckLedger",
    "ledger.backfill": "payintent.operations.ledger.BackfillLedger",
    "ledger.adjust": "payintent.operations.ledger_adjustment.AdjustLedger",
    "payout.record": "payintent.operations.payouts.RecordPayout",
    "payout.import": "payintent.operations.payouts.ImportPayouts",
    "payout.list": "payintent.operations.payouts.ListPayouts",
    "payout.reverse": "payintent.operations.payouts.ReversePayout",
    "gateway-payout.record": "payintent.operations.gateway_payouts.RecordGatewayPayout",
    "gateway-payout.list": "payintent.operations.gateway_payouts.ListGatewayPayouts",
    "gateway-payout.reverse": "payintent.operations.gateway_payouts.ReverseGatewayPayout",
    "statement.list": "payintent.operations.statements.ListStatements",
    "statement.show": "payintent.operations.statements.ShowStatement",
    "statement.export": "payintent.operations.statements.ExportStatement",
    "reconciliation.list": "payintent.operations.reconciliation_runs.ListReconciliationRuns",
    "reconciliation.show": "payintent.operations.reconciliation_runs.ShowReconciliationRun",
    "reconciliation.retry": "payintent.operations.reconciliation_runs.RetryReconciliationRun",
    "keyring.show": "payintent.operations.keyring.ShowKeyring",
    "keyring.rotate": "payintent.operations.keyring.RotateKeyring",
    "audit.list": "payintent.operations.audit_log.ListAuditEntries",
    "webhooks.list": "payintent.operations.webhooks.ListDeliveries",
    "webhooks.endpoints": "payintent.operations.webhooks.ListEndpoints",
    "webhooks.show": "payintent.operations.webhooks.ShowEvent",
    "webhooks.replay": "payintent.operations.webhooks.ReplayEvent",
    "webhooks.replay-missed": "payintent.operations.webhooks.ReplayMissedEvents",
}


class _Operations(Mapping[str, OperationType]):
    """Imports an operation when it is looked up: a command needs only a few of them."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes

    def __getitem__(self, action: str) -> OperationType:
        module, _, name = self._classes[action].rpartition(".")
        return getattr(import_module(module), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, action: object) -> bool:
        return action in self._classes


OPERATIONS: Mapping[str, OperationType] = _Operations(_CLASSES)


def load_operations() -> None:
    """Import all operations; servers call this before they accept requests."""
    for action in OPERATIONS:
        OPERATIONS[action]
