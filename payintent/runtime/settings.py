"""The settings, with their units, limits and defaults."""

import ssl
from decimal import Decimal
from enum import StrEnum
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from payintent.core.access import RateLimit
from payintent.core.addresses import is_confidential, parse_web_origin
from payintent.runtime.setting_types import (
    BaseUrl,
    Batch,
    CaFile,
    ClaimRoles,
    Contact,
    Count,
    Days,
    Folder,
    Hours,
    Interval,
    Issuer,
    KeyMark,
    Limit,
    LogLevel,
    MailAddress,
    MailHost,
    Milliseconds,
    Networks,
    Origin,
    Origins,
    PortNumber,
    PortNumbers,
    PrivateNetworks,
    RetentionDays,
    Seconds,
    Size,
    Timeout,
    make_tls_context,
    split_list,
)


class RetentionRule(StrEnum):
    """Retention rules, in the order in which they are applied."""

    ATTEMPTS = "attempts"  # webhook delivery attempts
    EVENTS = "events"  # including their deliveries
    PAYER_ADDRESSES = "payer_addresses"  # sender addresses of on-chain transfers
    PAYER_DETAILS = "payer_details"  # email addresses and metadata of payments
    PAYERS = "payers"  # payer references, and all remaining personal data of payments


FEED_DAYS = 30  # how far back a merchant's first read of the event feed starts
_CONNECTIONS_MIN = 4  # per process, so that a long transaction does not block other work


def _list_database_names(field: str) -> AliasChoices:
    """Return the names of a database setting, whose prefix is optional."""
    return AliasChoices(field, field.upper(), f"PAYINTENT_{field.upper()}")


class Settings(BaseSettings):
    """Settings from the environment variables `PAYINTENT_…` and `DATABASE_URL`.

    The attributes' docstrings are the descriptions in docs/operate/settings.md (`make docs`).
    """

    model_config = SettingsConfigDict(env_prefix="PAYINTENT_", frozen=True, extra="ignore")

    # Database
    database_url: str = Field(
        min_length=1,
        repr=False,  # it contains a password
        validation_alias=_list_database_names("database_url"),
    )
    """PostgreSQL connection URL. `PAYINTENT_DATABASE_URL` is also accepted."""
    database_direct_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_list_database_names("database_direct_url"),
    )
    """Connection URL that bypasses a connection pooler. It is used for LISTEN, locks and
    migrations. Default: `DATABASE_URL`.
    """
    database_read_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_list_database_names("database_read_url"),
    )
    """Connection URL of a streaming replica for lists and reports. If unset, lists are read from
    `DATABASE_URL`.
    """
    database_read_lag_max_s: Seconds = 5.0
    """Maximum age of data read from the replica."""
    database_pooled: bool = False
    """Set to true behind PgBouncer in transaction mode."""
    database_connections_max: Annotated[int, Field(ge=1, le=1_000)] = 32
    """Maximum number of connections for an `api` or `worker` command. They are divided among its
    processes, with at least 4 for each process.
    """
    database_acquire_timeout_s: Timeout = 5.0
    """Maximum time that a request waits for a connection."""
    database_statement_timeout_ms: Milliseconds = 5_000
    """Statement timeout. If the server does not respond, the connection is closed one second later.
    """
    database_lock_timeout_ms: Milliseconds = 2_000
    """Maximum time that a duplicate request waits for the first request."""

    # Secrets, which have no defaults in any environment
    pepper: SecretStr
    """32 bytes in Base64. Digests of API keys, operator tokens, portal links and buyer addresses
    depend on this value, so never change it.
    """
    keyring: SecretStr
    """Encryption keys as `name:base64,name:base64`, with 32 bytes each. New data is encrypted with
    the first key.
    """

    # Our URLs
    checkout_base: BaseUrl = ""
    """URL of the hosted checkout, such as `https://pay.example.com/c`. If empty, responses do not
    contain `checkout_url`.
    """
    api_base: BaseUrl = "http://127.0.0.1:8080/v1"
    """Base URL to which gateways send callbacks. Flag images are served from its origin."""
    console_base: Origin = ""
    """Origin at which a TLS proxy serves the operator console, such as
    `https://console.example.com`. If empty, the console is available only on loopback.
    """
    portal_base: BaseUrl = ""
    """URL of the merchant portal, such as `https://pay.example.com/merchant`. Passkeys are
    permanently bound to its host. Default: `/merchant` at the origin of `PAYINTENT_API_BASE`.
    """
    operator_contact: Contact = ""
    """How merchants can contact you: an email address or an https URL. The portal shows it next to
    live settings, which only you can change.
    """
    packages_dir: str = ""
    """Folder with the packages that are served at `/packages/`. Default: the SDKs and plugins in
    the release.
    """
    key_mark: KeyMark = "00"
    """Two letters or digits at the start of the public part of new API keys. If you run several
    installations, set a different value for each, so that a proxy can route requests by key.
    Existing keys stay valid.
    """
    sandbox: bool = False
    """Sandbox mode: webhooks may go to loopback and private addresses, and commands
    in a terminal do not require an operator token. Never set it in production.
    """

    # Console sign-in with OpenID Connect; without an issuer, operators need tokens
    oidc_issuer: Issuer = ""
    """Issuer URL of the OpenID Connect provider, exactly as in its tokens, such as
    `https://login.example.com/realms/staff`. If empty, operators sign in with tokens only.
    """
    oidc_client_id: str = ""
    """The console's client ID at the provider."""
    oidc_client_secret: SecretStr = SecretStr("")
    """The console's client secret at the provider."""
    oidc_claim: str = "groups"
    """ID token claim that contains the roles, as a string or a list of strings."""
    oidc_roles: ClaimRoles = ""
    """Mapping from claim values to roles as `value=role`, separated by commas, such as
    `payments-admins=admin,staff=viewer`. The highest matching role applies. Users without a
    matching role are rejected.
    """

    # Mail for invitations and receipts; without a host, no mail is sent
    smtp_host: MailHost = ""
    """Host name of the mail server. If empty, no mail is sent."""
    smtp_port: PortNumber = 587
    """Port of the mail server."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """Encryption: `starttls`, `tls` (TLS from the first byte, usually on port 465), or `none`,
    which is allowed only for a server on the same machine.
    """
    smtp_user: str = ""
    """User name for the mail server. If empty, the service does not authenticate."""
    smtp_password: SecretStr = SecretStr("")
    """Password for the mail server."""
    smtp_from: MailAddress = ""
    """Sender address, such as `payments@example.com`."""

    # The edge network reports the viewer's country. It is trusted only if it sends the secret.
    edge_country_header: str = "CloudFront-Viewer-Country"
    """Header in which the edge network sends the viewer's country, such as `CF-IPCountry`."""
    edge_secret_header: str = "X-Edge-Secret"  # noqa: S105 - a header's name
    """Header in which the edge network sends the shared secret."""
    edge_secret: SecretStr = SecretStr("")
    """Secret shared with the edge network. If empty, country headers are ignored."""
    edge_trusted_proxies: Networks = ""
    """Addresses and networks of trusted proxies, separated by commas."""
    edge_address_header: Literal["", "X-Forwarded-For", "Forwarded"] = ""
    """Header in which the proxies send client addresses. If empty, `X-Forwarded-For` and
    `Forwarded` are both accepted, but must not contradict each other.
    """

    # Incoming HTTP
    body_bytes_max: Size = 64 * 1024
    """Maximum size of a JSON request body."""
    header_bytes_max: Size = 32 * 1024
    """Maximum size of the request line and headers."""
    header_timeout_s: Timeout = 10.0
    """Maximum time for a client to send the headers."""
    body_timeout_s: Timeout = 30.0
    """Maximum time for a client to send the body, and to receive the response."""
    callback_bytes_max: Size = 256 * 1024
    """Maximum size of a gateway callback. Adapters have lower limits: 16 KiB, except for Stripe."""
    connections_max: Count = 4_000
    """Maximum number of connections to a process, including streams. A lower limit on open files
    takes precedence.
    """
    requests_max: Count = 64
    """Maximum number of concurrent requests in a process, for each lane (merchants, buyers,
    gateways, exports, others). Requests that wait for a gateway or another external server do not
    count.
    """
    requests_waiting_max: Limit = 512
    """Maximum number of requests that wait for a slot, for each lane. Further requests are rejected
    immediately.
    """
    request_wait_s: Seconds = 1.0
    """Maximum time that a request waits for a slot before it is rejected."""
    readiness_cache_s: Seconds = 1.0
    """Time for which a `/readyz` result is cached."""
    drain_s: Annotated[float, Field(ge=0, le=15)] = 5.0
    """Time after SIGTERM during which an API process still accepts requests, while `/readyz`
    returns 503. It must be longer than the proxy's idle timeout, and long enough for a load
    balancer to detect the 503.
    """

    # TLS for outgoing requests to gateways, webhook endpoints, chain endpoints and signers
    ca_file: CaFile = ""
    """PEM file with certificate authorities that are trusted in addition to the system's."""

    # Tracing, with the `otel` extra
    otlp_endpoint: BaseUrl = ""
    """URL of an OpenTelemetry collector, such as `http://127.0.0.1:4318`. Requires the `otel`
    extra. If empty, tracing is disabled.
    """
    trace_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of payments that are traced."""

    # Payments
    amount_min: Annotated[Decimal, Field(ge=0, le=10**15)] = Decimal(0)
    """Minimum amount of a payment, in currency units. An amount of zero is always rejected."""
    amount_max: Annotated[Decimal, Field(gt=0, le=10**15)] = Decimal(10) ** 9
    """Maximum amount of a payment, in currency units."""
    metadata_bytes_max: Annotated[int, Field(ge=2, le=1024**2)] = 16 * 1024
    """Maximum size of `metadata`."""
    metadata_levels_max: Annotated[int, Field(ge=1, le=100)] = 32
    """Maximum nesting depth of `metadata`."""
    api_key_cache_s: Seconds = 1.0
    """Time for which the state of an API key is cached. A revoked key may remain valid for this
    long.
    """
    policy_cache_s: Seconds = 1.0
    """Time for which fraud rules and restrictions are cached."""

    # Default rate limits per merchant; not applied in a sandbox
    rate_create_per_s: Count = 500
    """Payments that a merchant can create, unless the merchant has an individual limit. Not applied
    in a sandbox.
    """
    rate_create_burst: Count = 1_000
    """Payments that a merchant can create in a burst after a pause."""
    rate_read_per_s: Count = 1_000
    """All other API calls by a merchant, including repeated create requests."""
    rate_read_burst: Count = 2_000
    """Other API calls by a merchant in a burst after a pause."""
    checkout_per_address_per_s: Limit = 20
    """Checkout requests from an address to a process, if a proxy is declared. 0 disables the limit.
    """
    checkout_per_address_burst: Count = 100
    """Checkout requests from an address in a burst after a pause."""
    failed_logins_per_address_per_s: Limit = 10
    """Failed authentications that a process allows from an address before it throttles further
    failures. 0 disables the limit.
    """
    failed_logins_per_address_burst: Count = 100
    """Failed authentications from an address in a burst after a pause."""
    fraud_decisions_days: Days = 90
    """Retention period for fraud screening denials."""
    api_calls_days: Annotated[int, Field(ge=0, le=365)] = 7
    """Retention period for merchants' API calls. 0 disables recording."""

    # Gateways
    gateway_calls_days: Days = 30
    """Retention period for logged gateway requests."""
    gateway_origins: Origins = ""
    """Origins that account URLs may have in addition to the adapter's origins, separated by commas,
    such as `https://eu.gateway.example.com`. In a sandbox, any origin is accepted.
    """
    gateway_timeout_s: Annotated[float, Field(gt=0, le=50)] = 15.0  # shorter than a session's lease
    """Timeout for a gateway request, including the whole response."""
    gateway_answer_bytes_max: Size = 256 * 1024
    """Maximum size of a gateway response."""
    buyer_calls_per_s: Limit = 100
    """Buyer-triggered calls to a gateway account, across all processes. 0 disables the limit."""
    buyer_calls_burst: Count = 500
    """Buyer-triggered calls to a gateway account in a burst after a pause. A single merchant can
    use about two thirds; the rest is reserved for other merchants.
    """
    #: Including the workers' intervals and a second for the response, the payment is EXPIRED within
    #: 30 s.
    closing_patience_s: Seconds = 25.0
    """Time that an expiring payment waits for an unresponsive gateway."""
    authorising_patience_hours: Annotated[float, Field(gt=0, le=8_760)] = 24.0
    """Time that a payment waits after its deadline if the gateway reports a pending authorisation.
    """
    unknown_callback_hours: Hours = 24
    """Retention period for callbacks about unknown sessions."""
    callback_bodies_days: Days = 30
    """Retention period for the bodies of applied callbacks."""

    # Retention; 0 disables deletion
    attempts_days: RetentionDays = 90
    """Retention period for webhook delivery attempts. 0 disables deletion."""
    events_days: RetentionDays = 365
    """Retention period for events: at least 30 days, and not longer than for email addresses and
    metadata. 0 disables deletion.
    """
    payer_addresses_days: RetentionDays = 90
    """Retention period for sender addresses of on-chain transfers. 0 disables deletion."""
    payer_details_days: RetentionDays = 730
    """Retention period for email addresses and metadata after a payment has ended. 0 disables
    deletion.
    """
    payers_days: RetentionDays = 3650
    """Retention period for payer references after a payment has ended. If the period for events is
    longer, it applies instead. 0 disables deletion.
    """

    seal_payer_data: bool = False
    """Whether email addresses, metadata and events are encrypted with the key ring."""

    # Chains. Endpoints are separated by commas and may contain keys; "" disables a chain.
    rpc_ethereum: SecretStr = SecretStr("")
    """RPC endpoints for Ethereum, separated by commas. If empty, the chain is not watched."""
    rpc_bsc: SecretStr = SecretStr("")
    """RPC endpoints for BNB Smart Chain."""
    rpc_native: SecretStr = SecretStr("")
    """RPC endpoints for the native chain."""
    signer_ethereum: SecretStr = SecretStr("")
    """URL of the signer for refunds on Ethereum. If empty, refunds on this chain are not sent."""
    signer_bsc: SecretStr = SecretStr("")
    """URL of the signer for refunds on BNB Smart Chain."""
    signer_native: SecretStr = SecretStr("")
    """URL of the signer for refunds on the native chain."""
    chain_any_endpoints: bool = False
    """Whether a single endpoint, and `http` URLs for endpoints and signers on other machines, are
    allowed outside a sandbox. `payintent doctor` warns if this is enabled.
    """
    chain_poll_ethereum_s: Interval = 6.0
    """Poll interval for Ethereum while a session or refund is pending."""
    chain_poll_s: Interval = 2.0
    """Poll interval for all other chains while a session or refund is pending."""
    chain_poll_idle_s: Interval = 60.0
    """Poll interval while no session or refund is pending; at most a third of
    `PAYINTENT_CHAIN_WATCHED_S`.
    """
    chain_watched_s: Interval = 180.0
    """Time for which a chain's methods are offered after a successful check."""
    chain_behind_max_s: Seconds = 600.0
    """Maximum age of a chain's latest block. If the block is older, the chain's methods are not
    offered. For chains that create blocks only on demand, use 0, which disables the check.
    """

    # Workers
    expire_every_s: Interval = 1.0
    """Interval between checks for overdue payments."""
    expire_batch_max: Batch = 500
    """Maximum number of payments that a worker expires in a transaction."""
    measure_every_s: Interval = 15.0
    """Interval at which the backlog metrics are measured."""
    inquire_every_s: Interval = 1.0
    """Interval between checks for sessions that must be queried at their gateways."""
    inquire_batch_max: Batch = 50
    """Maximum number of sessions that are claimed together."""
    refund_every_s: Interval = 1.0
    """Interval between checks for refunds that must be sent or queried."""
    prune_every_s: Interval = 60.0
    """Interval between deletions of data whose retention period has ended."""
    prune_batch_max: Batch = 1_000
    """Maximum number of rows that a statement deletes."""

    # Gateways' settlement files, in a folder per account
    settlement_folder: Folder = ""
    """Absolute path of the folder for settlement files. If empty, no folder is read."""
    settlement_s3_url: BaseUrl = ""
    """Bucket and prefix in an S3-compatible store, such as
    `https://s3.ap-southeast-1.amazonaws.com/settlements`. If empty, no bucket is read.
    """
    settlement_s3_region: str = "us-east-1"
    """The bucket's region."""
    settlement_s3_key_id: str = ""
    """ID of an access key with permission to list and read the bucket."""
    settlement_s3_secret_key: SecretStr = SecretStr("")
    """Secret part of the access key."""
    reconcile_every_s: Interval = 300.0
    """Interval between checks for settlement files, and for contracts whose daily check is due."""

    # Webhooks
    webhook_networks: PrivateNetworks = ""
    """Private networks in which webhook endpoints are allowed, separated by commas."""
    webhook_ports: PortNumbers = ""
    """Ports that webhook endpoints may use in addition to 80, 443, 8080 and 8443, separated by
    commas.
    """
    webhook_timeout_s: Timeout = 15.0
    """Timeout for a delivery attempt, from the name lookup to the last byte."""
    webhook_dns_timeout_s: Timeout = 2.0
    """Timeout for the name lookup."""
    webhook_connect_timeout_s: Timeout = 3.0
    """Timeout for the connection."""
    webhook_answer_bytes_max: Size = 16 * 1024
    """Maximum number of response bytes that are read."""
    webhook_answer_kept_bytes_max: Annotated[int, Field(ge=0, le=1024**2)] = 2 * 1024
    """Maximum number of response bytes that are stored."""
    webhook_poll_s: Interval = 0.25
    """Poll interval of the outbox, in addition to notifications from the database."""
    webhook_sockets_max: Annotated[int, Field(ge=1, le=100_000)] = 2_048
    """Maximum number of connections from a worker process to all endpoints. A lower limit on open
    files takes precedence.
    """
    webhook_lease_s: Interval = 45.0
    """Time after which another worker may repeat a delivery. It must be longer than
    `PAYINTENT_WEBHOOK_TIMEOUT_S`.
    """

    # Logs
    log_level: LogLevel = "INFO"
    """Minimum level of log lines."""

    @model_validator(mode="after")
    def _check_settlement_store(self) -> Self:
        if self.settlement_s3_url and not (
            self.settlement_s3_key_id and self.settlement_s3_secret_key.get_secret_value()
        ):
            raise ValueError(
                "PAYINTENT_SETTLEMENT_S3_URL needs PAYINTENT_SETTLEMENT_S3_KEY_ID and "
                "PAYINTENT_SETTLEMENT_S3_SECRET_KEY"
            )
        return self

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.database_pooled and not self.database_direct_url:
            raise ValueError(
                "PAYINTENT_DATABASE_POOLED needs DATABASE_DIRECT_URL: LISTEN, locks and "
                "migrations do not work through a pooler"
            )
        if self.amount_min > self.amount_max:
            raise ValueError("PAYINTENT_AMOUNT_MIN must not exceed PAYINTENT_AMOUNT_MAX")
        if self.oidc_issuer and not (
            self.oidc_client_id and self.oidc_client_secret.get_secret_value() and self.oidc_roles
        ):
            raise ValueError(
                "PAYINTENT_OIDC_ISSUER needs PAYINTENT_OIDC_CLIENT_ID, "
                "PAYINTENT_OIDC_CLIENT_SECRET and PAYINTENT_OIDC_ROLES"
            )
        if self.smtp_host and not self.smtp_from:
            raise ValueError("PAYINTENT_SMTP_HOST needs PAYINTENT_SMTP_FROM")
        is_local = is_confidential(f"http://{self.smtp_host}")
        if self.smtp_host and self.smtp_security == "none" and not is_local:
            raise ValueError("PAYINTENT_SMTP_SECURITY may be none only for a local mail server")
        if self.smtp_user and self.smtp_security == "none":
            raise ValueError("PAYINTENT_SMTP_USER needs PAYINTENT_SMTP_SECURITY starttls or tls")
        if 0 < self.events_days < FEED_DAYS:
            raise ValueError(
                f"PAYINTENT_EVENTS_DAYS must be 0 or at least {FEED_DAYS}, for the event feed"
            )
        if self.payer_details_days and not 0 < self.events_days <= self.payer_details_days:
            raise ValueError(
                "PAYINTENT_EVENTS_DAYS must be at most PAYINTENT_PAYER_DETAILS_DAYS and not 0 "
                "(forever), because events contain metadata"
            )
        if self.webhook_lease_s <= self.webhook_timeout_s:
            raise ValueError("PAYINTENT_WEBHOOK_LEASE_S must exceed PAYINTENT_WEBHOOK_TIMEOUT_S")
        return self

    def count_connections_per_process(self, processes: int) -> int:
        """Return the number of database connections for each of several processes."""
        share = ceil(self.database_connections_max / processes)
        return max(share, min(_CONNECTIONS_MIN, self.database_connections_max))

    def make_process_settings(self, processes: int) -> Self:
        """Return the settings for each of several processes of an `api` or `worker` command."""
        connections = self.count_connections_per_process(processes)
        return self.model_copy(update={"database_connections_max": connections})

    @property
    def direct_url(self) -> str:
        return self.database_direct_url or self.database_url

    @property
    def pages_base(self) -> str:
        return self.checkout_base or f"{parse_web_origin(self.api_base) or ''}/c"

    @property
    def portal_address(self) -> str:
        return self.portal_base or f"{parse_web_origin(self.api_base) or ''}/merchant"

    @property
    def sends_mail(self) -> bool:
        return bool(self.smtp_host)

    @property
    def retention(self) -> dict[RetentionRule, int]:
        """The retention period of each rule in days. 0 disables deletion."""
        return {
            RetentionRule.ATTEMPTS: self.attempts_days,
            RetentionRule.EVENTS: self.events_days,
            RetentionRule.PAYER_ADDRESSES: self.payer_addresses_days,
            RetentionRule.PAYER_DETAILS: self.payer_details_days,
            # Events also contain the payer, so payers are retained at least as long as events.
            RetentionRule.PAYERS: max(self.payers_days, self.events_days)
            if self.payers_days and self.events_days
            else 0,
        }

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """The TLS context for outgoing requests. None means the system's authorities."""
        return make_tls_context(self.ca_file) if self.ca_file else None

    @property
    def buyer_calls(self) -> RateLimit | None:
        """The rate limit for buyer-triggered calls to a gateway account, or None if unlimited."""
        per_s = self.buyer_calls_per_s
        return RateLimit(per_s, self.buyer_calls_burst) if per_s else None

    @property
    def extra_gateway_origins(self) -> list[str]:
        return split_list(self.gateway_origins)

    @property
    def endpoints(self) -> dict[str, list[str]]:
        """Endpoints by chain. The URLs may contain keys."""
        by_chain = {"ethereum": self.rpc_ethereum, "bsc": self.rpc_bsc, "native": self.rpc_native}
        split = {slug: split_list(urls.get_secret_value()) for slug, urls in by_chain.items()}
        return {slug: urls for slug, urls in split.items() if urls}

    @property
    def signers(self) -> dict[str, str]:
        """Signers by chain. The URLs may contain keys."""
        by_chain = {
            "ethereum": self.signer_ethereum,
            "bsc": self.signer_bsc,
            "native": self.signer_native,
        }
        urls = {slug: url.get_secret_value().strip() for slug, url in by_chain.items()}
        return {slug: url for slug, url in urls.items() if url}
