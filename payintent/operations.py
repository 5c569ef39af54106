"""All operations. Each is available as a command (`payintent merchant create`) and as a route.

`reconcile` is available only as a command, because it reads a local file.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from payintent.operators.operation import OperationType

#: Module path and class name of each operation, by action.
_CLASSES: Mapping[str, str] = {
    "merchant.create": "payintent.merchants.operations.CreateMerchant",
    "merchant.list": "payintent.merchants.operations.ListMerchants",
    "merchant.show": "payintent.merchants.operations.ShowMerchant",
    "merchant.profile": "payintent.merchants.operations.SetMerchantProfile",
    "merchant.set-callback-url": "payintent.merchants.operations.SetCallbackUrl",
    "merchant.set-refund-threshold": "payintent.merchants.operations.SetRefundThreshold",
    "merchant.set-deposit-tolerance": "payintent.merchants.operations.SetDepositTolerance",
    "merchant.rotate-secret": "payintent.merchants.callback_secrets.RotateCallbackSecret",
    "merchant.secrets": "payintent.merchants.callback_secrets.ListCallbackSecrets",
    "merchant.checklist": "payintent.merchants.activation.ShowChecklist",
    "merchant.activation": "payintent.merchants.activation.ShowActivation",
    "merchant.request": "payintent.merchants.activation.RequestActivation",
    "merchant.apply": "payintent.merchants.activation.ApplyActivation",
    "merchant.validate": "payintent.merchants.activation.ValidateActivation",
    "merchant.activate": "payintent.merchants.activation.ActivateMerchant",
    "merchant.suspend": "payintent.merchants.activation.SuspendMerchant",
    "merchant.resume": "payintent.merchants.activation.ResumeMerchant",
    "merchant.invite": "payintent.members.operations.InviteMember",
    "merchant.members": "payintent.members.operations.ListMembers",
    "merchant.remove-member": "payintent.members.operations.RemoveMember",
    "key.issue": "payintent.merchants.access_operations.IssueApiKey",
    "key.list": "payintent.merchants.access_operations.ListApiKeys",
    "key.revoke": "payintent.merchants.access_operations.RevokeApiKey",
    "operator.issue": "payintent.operators.operations.IssueOperatorToken",
    "operator.set-role": "payintent.operators.operations.SetRole",
    "operator.extend": "payintent.operators.operations.ExtendToken",
    "operator.replace": "payintent.operators.operations.ReplaceToken",
    "operator.list": "payintent.operators.operations.ListOperatorTokens",
    "operator.revoke": "payintent.operators.operations.RevokeOperatorToken",
    "operator.identities": "payintent.operators.operations.ListIdentities",
    "operator.block": "payintent.operators.operations.BlockIdentity",
    "operator.unblock": "payintent.operators.operations.UnblockIdentity",
    "approval.list": "payintent.approvals.operations.ListApprovals",
    "approval.show": "payintent.approvals.operations.ShowApproval",
    "approval.approve": "payintent.approvals.operations.Approve",
    "approval.reject": "payintent.approvals.operations.Reject",
    "account.add": "payintent.gateway_accounts.operations.AddAccount",
    "account.list": "payintent.gateway_accounts.operations.ListAccounts",
    "account.show": "payintent.gateway_accounts.operations.ShowAccount",
    "account.check": "payintent.gateway_accounts.operations.CheckAccount",
    "account.change": "payintent.gateway_accounts.operations.ChangeAccount",
    "account.enable": "payintent.gateway_accounts.operations.EnableAccount",
    "account.disable": "payintent.gateway_accounts.operations.DisableAccount",
    "method.add": "payintent.merchants.methods_operations.AddPaymentMethod",
    "method.list": "payintent.merchants.methods_operations.ListPaymentMethods",
    "method.change": "payintent.merchants.methods_operations.ChangePaymentMethod",
    "method.enable": "payintent.merchants.methods_operations.EnablePaymentMethod",
    "method.disable": "payintent.merchants.methods_operations.DisablePaymentMethod",
    "provider.health": "payintent.gateway_accounts.providers_operations.ListGatewayOutages",
    "provider.errors": "payintent.gateway_accounts.providers_operations.ListGatewayErrors",
    "provider.list": "payintent.gateway_accounts.providers_operations.ListProviders",
    "provider.enable": "payintent.gateway_accounts.providers_operations.EnableProvider",
    "provider.disable": "payintent.gateway_accounts.providers_operations.DisableProvider",
    "provider.rename": "payintent.gateway_accounts.providers_operations.RenameProvider",
    "tax.set": "payintent.merchants.taxes.SetTaxRate",
    "tax.list": "payintent.merchants.taxes.ListTaxRates",
    "tax.remove": "payintent.merchants.taxes.RemoveTaxRate",
    "restriction.add": "payintent.merchants.restrictions.AddRestriction",
    "restriction.list": "payintent.merchants.restrictions.ListRestrictions",
    "restriction.lift": "payintent.merchants.restrictions.LiftRestriction",
    "fraud.add": "payintent.fraud.operations.AddFraudRule",
    "fraud.list": "payintent.fraud.operations.ListFraudRules",
    "fraud.remove": "payintent.fraud.operations.RemoveFraudRule",
    "fraud.decisions": "payintent.fraud.operations.ListFraudDecisions",
    "limit.set": "payintent.merchants.access_operations.SetRateLimit",
    "limit.list": "payintent.merchants.access_operations.ListRateLimits",
    "limit.clear": "payintent.merchants.access_operations.ClearRateLimit",
    "chain.list": "payintent.chains.operations.ListChains",
    "chain.set": "payintent.onchain.operations.SetChain",
    "chain.set-token": "payintent.chains.operations.SetToken",
    "chain.add-contract": "payintent.chains.operations.AddContract",
    "chain.add-factory": "payintent.chains.factory_operations.AddFactory",
    "chain.sweep-now": "payintent.chains.operations.SweepNow",
    "chain.retire-contract": "payintent.chains.operations.RetireContract",
    "chain.resume": "payintent.chains.operations.ResumeChain",
    "quotes.explain": "payintent.quotes.operations.ExplainQuotes",
    "case.list": "payintent.cases.operations.ListCases",
    "case.show": "payintent.cases.operations.ShowCase",
    "case.resolve": "payintent.refunds.resolve_case.ResolveCase",
    "payment.list": "payintent.payments.operations.ListPayments",
    "payment.search": "payintent.payments.operations.SearchPayments",
    "payment.show": "payintent.payment_history.operations.ShowPayment",
    "payment.timeline": "payintent.payment_history.operations.ShowTimeline",
    "payment.cancel": "payintent.payments.operations.CancelPayment",
    "payment.refund": "payintent.refunds.operations.RefundPayment",
    "payment.end": "payintent.payment_sessions.operations.EndPayment",
    "payment-link.list": "payintent.payment_links.operations.ListPaymentLinks",
    "payment-link.deactivate": "payintent.payment_links.operations.DeactivatePaymentLink",
    "refund.list": "payintent.refunds.operations.ListRefunds",
    "refund.address-link": "payintent.refunds.operations.ShowAddressLink",
    "refund.show": "payintent.refunds.operations.ShowRefund",
    "refund.approve": "payintent.refunds.approval_operations.ApproveRefund",
    "refund.reject": "payintent.refunds.approval_operations.RejectRefund",
    "refund.resend": "payintent.refunds.operations.ResendRefund",
    "refund.ask-first": "payintent.refunds.operations.CheckQueuedRefunds",
    "dispute.list": "payintent.disputes.operations.ListDisputes",
    "payer.export": "payintent.privacy.operations.ExportPayer",
    "payer.erase": "payintent.privacy.operations.ErasePayer",
    "retention.show": "payintent.privacy.operations.ShowRetention",
    "ledger.show": "payintent.accounting.ledger_operations.ShowLedger",
    "ledger.check": "payintent.accounting.ledger_operations.CheckLedger",
    "ledger.backfill": "payintent.accounting.ledger_operations.BackfillLedger",
    "ledger.adjust": "payintent.accounting.ledger_operations.AdjustLedger",
    "payout.record": "payintent.accounting.payouts_operations.RecordPayout",
    "payout.import": "payintent.accounting.payouts_operations.ImportPayouts",
    "payout.list": "payintent.accounting.payouts_operations.ListPayouts",
    "payout.reverse": "payintent.accounting.payouts_operations.ReversePayout",
    "gateway-payout.record": "payintent.accounting.payouts_operations.RecordGatewayPayout",
    "gateway-payout.list": "payintent.accounting.payouts_operations.ListGatewayPayouts",
    "gateway-payout.reverse": "payintent.accounting.payouts_operations.ReverseGatewayPayout",
    "statement.list": "payintent.accounting.statements_operations.ListStatements",
    "statement.show": "payintent.accounting.statements_operations.ShowStatement",
    "statement.export": "payintent.accounting.statements_operations.ExportStatement",
    "reconciliation.list": "payintent.reconciliation.operations.ListReconciliationRuns",
    "reconciliation.show": "payintent.reconciliation.operations.ShowReconciliationRun",
    "reconciliation.retry": "payintent.reconciliation.operations.RetryReconciliationRun",
    "keyring.show": "payintent.privacy.keyring_operations.ShowKeyring",
    "keyring.rotate": "payintent.privacy.keyring_operations.RotateKeyring",
    "audit.list": "payintent.operators.operations.ListAuditEntries",
    "webhooks.list": "payintent.webhooks.operations.ListDeliveries",
    "webhooks.endpoints": "payintent.webhooks.operations.ListEndpoints",
    "webhooks.show": "payintent.webhooks.operations.ShowEvent",
    "webhooks.replay": "payintent.webhooks.operations.ResendEvent",
    "webhooks.replay-missed": "payintent.webhooks.operations.ResendMissedEvents",
}


class _Operations(Mapping[str, OperationType]):
    """Imports operations on first lookup, because a command needs only a few of them."""

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
    """Import all operations. Servers call this before they accept requests."""
    for action in OPERATIONS:
        OPERATIONS[action]
