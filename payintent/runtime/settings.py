"""The settings, with their units, limits and defaults."""

import ssl
from decimal import Decimal
from enum import StrEnum
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from payintent.core.access import RateLimit
from payintent.core.addresses import is_confidential, web_origin
from payintent.runtime.setting_types import (
    BaseUrl,
    Batch,
    CaFile,
    ClaimRoles,
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
    PAYER_DETAILS = "payer_details"  # e-mail addresses and metadata of payments
    PAYERS = "payers"  # payer references, and all remaining personal data of payments


FEED_DAYS = 30  # how far back a merchant's first read of the event feed starts
_CONNECTIONS_MIN = 4  # per process, so that a long transaction does not block other work


def _database_names(field: str) -> AliasChoices:
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
        validation_alias=_database_names("database_url"),
    )
    """URL of the database. `PAYINTENT_DATABASE_URL` is also accepted."""
    database_direct_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_database_names("database_direct_url"),
    )
    """URL that bypasses a pooler, for LISTEN, locks and migrations. Default: `DATABASE_URL`."""
    database_read_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_database_names("database_read_url"),
    )
    """URL of a streaming replica for lists and reports. Default: lists are read from
    `DATABASE_URL`.
    """
    database_read_lag_max_s: Seconds = 5.0
    """Maximum age of data that is read from the replica."""
    database_pooled: bool = False
    """Set to true behind PgBouncer in transaction mode."""
    database_connections_max: Annotated[int, Field(ge=1, le=1_000)] = 32
    """Connections of one `api` or `worker` command, divided among its processes, with at least 4
    for each process.
    """
    database_acquire_timeout_s: Timeout = 5.0
    """How long a request waits for a connection."""
    database_statement_timeout_ms: Milliseconds = 5_000
    """Statement timeout. If the server does not respond, the connection is closed one second
    later.
    """
    database_lock_timeout_ms: Milliseconds = 2_000
    """How long a duplicate request waits for the first request."""

    # Secrets, which have no defaults in any environment
    pepper: SecretStr
    """Base64 of 32 bytes. Digests of API keys, operator tokens, portal links and buyer addresses
    depend on it. It can never change.
    """
    keyring: SecretStr
    """Encryption keys as `name:base64,name:base64`, 32 bytes each. The first key encrypts."""

    # Our URLs
    checkout_base: BaseUrl = ""
    """URL of the hosted checkout, such as `https://pay.example.com/c`. If empty, responses omit
    `checkout_url`.
    """
    api_base: BaseUrl = "http://127.0.0.1:8080/v1"
    """URL under which gateways reach callbacks. Flags are served from its origin."""
    console_base: Origin = ""
    """Origin at which a TLS proxy serves the operator console, such as
    `https://console.example.com`. If empty, the console is only available on loopback.
    """
    portal_base: BaseUrl = ""
    """URL of the merchant portal, such as `https://pay.example.com/merchant`. Passkeys are
    permanently bound to its host. Default: `/merchant` at the origin of `PAYINTENT_API_BASE`.
    """
    packages_dir: str = ""
    """Folder with the packages that `/packages/` serves. Default: the SDKs and plugins of the
    release.
    """
    key_mark: KeyMark = "00"
    """Two letters or digits at the start of the public part of new API keys. If you run several
    installations, give each a different value, so that a proxy can route by key. Existing keys
    stay valid.
    """
    sandbox: bool = False
    """Sandbox mode: webhooks may go to loopback and private addresses, and a terminal needs no
    operator token. Never set it in production.
    """

    # Console sign-in with OpenID Connect; without an issuer, operators need tokens
    oidc_issuer: Issuer = ""
    """Issuer URL of the OpenID Connect provider, exactly as in its tokens, such as
    `https://login.example.com/realms/staff`. If empty, operators sign in with tokens only.
    """
    oidc_client_id: str = ""
    """Client ID of the console at the provider."""
    oidc_client_secret: SecretStr = SecretStr("")
    """Client secret of the console at the provider."""
    oidc_claim: str = "groups"
    """ID token claim with the roles: a string or a list of strings."""
    oidc_roles: ClaimRoles = ""
    """Mapping from claim values to roles as `value=role`, separated by commas, such as
    `payments-admins=admin,staff=viewer`. The highest matching role applies. Users without a
    matching role are rejected.
    """

    # Mail for invitations and receipts; without a host, no mail is sent
    smtp_host: MailHost = ""
    """Mail server. If empty, no mail is sent."""
    smtp_port: PortNumber = 587
    """Port of the mail server."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls`, `tls` (TLS from the first byte, usually on port 465), or `none`, which is only
    allowed for a server on this machine.
    """
    smtp_user: str = ""
    """User name at the mail server. If empty, the service does not authenticate."""
    smtp_password: SecretStr = SecretStr("")
    """Password at the mail server."""
    smtp_from: MailAddress = ""
    """Sender address of mail, such as `payments@example.com`."""

    # The edge network reports the viewer's country. It is only trusted if it sends the secret.
    edge_country_header: str = "CloudFront-Viewer-Country"
    """Header in which the edge network sends the viewer's country, such as `CF-IPCountry`."""
    edge_secret_header: str = "X-Edge-Secret"  # noqa: S105 - a header's name
    """Header in which the edge network sends the shared secret."""
    edge_secret: SecretStr = SecretStr("")
    """Shared secret of the edge network. If empty, country headers are ignored."""
    edge_trusted_proxies: Networks = ""
    """Addresses and networks of trusted proxies, separated by commas."""
    edge_address_header: Literal["", "X-Forwarded-For", "Forwarded"] = ""
    """Header in which the proxies send client addresses. If empty, both headers are accepted, but
    they must agree.
    """

    # Incoming HTTP
    body_bytes_max: Size = 64 * 1024
    """Maximum size of a JSON request body."""
    header_bytes_max: Size = 32 * 1024
    """Maximum size of a request line and headers."""
    header_timeout_s: Timeout = 10.0
    """How long a client may take to send the headers."""
    body_timeout_s: Timeout = 30.0
    """How long a client may take to send the body, and to receive the response."""
    callback_bytes_max: Size = 256 * 1024
    """Maximum size of a gateway callback. Adapters have their own limits: 16 KiB, except for
    Stripe.
    """
    connections_max: Count = 4_000
    """Connections to one process, including streams. The limit of open files may reduce it."""
    requests_max: Count = 64
    """Concurrent requests of one process in each lane (merchants, buyers, gateways, other).
    Requests that wait for a gateway or another external server do not count.
    """
    requests_waiting_max: Limit = 512
    """Requests that may wait for a slot in each lane. Further requests are shed immediately."""
    request_wait_s: Seconds = 1.0
    """How long a request waits for a slot before it is shed."""
    readiness_cache_s: Seconds = 1.0
    """How long a `/readyz` result is cached."""
    drain_s: Annotated[float, Field(ge=0, le=15)] = 5.0
    """How long an API process accepts requests after SIGTERM, while `/readyz` returns 503. Must be
    longer than the proxy keeps idle connections, and long enough for a load balancer to notice
    the 503.
    """

    # TLS of outgoing requests to gateways, webhook endpoints, chain endpoints and signers
    ca_file: CaFile = ""
    """PEM file with certificate authorities that are trusted in addition to the system's
    authorities.
    """

    # Tracing, with the extra `otel`
    otlp_endpoint: BaseUrl = ""
    """OpenTelemetry collector, such as `http://127.0.0.1:4318`. If empty, tracing is disabled.
    Needs the extra `otel`.
    """
    trace_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of payments that are traced."""

    # Payments
    amount_min: Annotated[Decimal, Field(ge=0, le=10**15)] = Decimal(0)
    """Minimum amount of a payment, in units of its currency. An amount of zero is always rejected.
    """
    amount_max: Annotated[Decimal, Field(gt=0, le=10**15)] = Decimal(10) ** 9
    """Maximum amount of a payment, in units of its currency."""
    metadata_bytes_max: Annotated[int, Field(ge=2, le=1024**2)] = 16 * 1024
    """Maximum size of `metadata`."""
    metadata_levels_max: Annotated[int, Field(ge=1, le=100)] = 32
    """Maximum nesting depth of `metadata`."""
    api_key_cache_s: Seconds = 1.0
    """How long the state of an API key is cached. A revoked key may work this much longer."""
    policy_cache_s: Seconds = 1.0
    """How long fraud rules and restrictions are cached."""

    # Default rate limits per merchant; not applied in a sandbox
    rate_create_per_s: Count = 500
    """Payment creations of a merchant without its own limit. Not applied in a sandbox."""
    rate_create_burst: Count = 1_000
    """Payment creations that may arrive at once after a pause."""
    rate_read_per_s: Count = 1_000
    """All other API calls of a merchant, including replayed creations."""
    rate_read_burst: Count = 2_000
    """Other API calls that may arrive at once after a pause."""
    checkout_per_address_per_s: Limit = 20
    """Checkout requests of one address to one process, if a proxy is declared. 0 disables the
    limit.
    """
    checkout_per_address_burst: Count = 100
    """Checkout requests that may arrive at once after a pause."""
    failed_logins_per_address_per_s: Limit = 10
    """Failed authentications of one address at one process before it is throttled. 0 disables the
    limit.
    """
    failed_logins_per_address_burst: Count = 100
    """Failed authentications that may arrive at once after a pause."""
    fraud_decisions_days: Days = 90
    """Retention of fraud screening denials."""
    api_calls_days: Annotated[int, Field(ge=0, le=365)] = 7
    """Retention of merchants' API calls, which the portal shows to developers. 0 disables
    recording.
    """

    # Gateways
    gateway_calls_days: Days = 30
    """Retention of logged requests to gateways."""
    gateway_origins: Origins = ""
    """Origins that account URLs may have in addition to the adapter's origins, separated by
    commas, such as `https://eu.gateway.example.com`. A sandbox accepts any origin.
    """
    gateway_timeout_s: Annotated[float, Field(gt=0, le=50)] = 15.0  # below the lease of a session
    """Timeout of a gateway request, including the whole response."""
    gateway_answer_bytes_max: Size = 256 * 1024
    """Maximum size of a gateway response."""
    buyer_calls_per_s: Limit = 100
    """Calls to one gateway account that buyers may cause, in all processes together. 0 disables
    the limit.
    """
    buyer_calls_burst: Count = 500
    """Calls that may be made at once after a pause. One merchant gets about two thirds; the rest
    is reserved for other merchants.
    """
    #: Including the workers' intervals and a second for the response, the payment is EXPIRED within
    #: 30 s.
    closing_patience_s: Seconds = 25.0
    """How long an expiring payment waits for an unresponsive gateway."""
    authorising_patience_hours: Annotated[float, Field(gt=0, le=8_760)] = 24.0
    """How long a payment waits after its deadline if the gateway reports a pending authorisation.
    """
    unknown_callback_hours: Hours = 24
    """Retention of callbacks for unknown sessions."""
    callback_bodies_days: Days = 30
    """Retention of the bodies of applied callbacks."""

    # Retention; 0 disables deletion
    attempts_days: RetentionDays = 90
    """Retention of webhook delivery attempts. 0 keeps them forever."""
    events_days: RetentionDays = 365
    """Retention of events: at least 30 days, and not longer than e-mail and metadata. 0 keeps them
    forever.
    """
    payer_addresses_days: RetentionDays = 90
    """Retention of sender addresses of on-chain transfers. 0 keeps them forever."""
    payer_details_days: RetentionDays = 730
    """Retention of e-mail addresses and metadata after a payment has ended. 0 keeps them forever.
    """
    payers_days: RetentionDays = 3650
    """Retention of payer references after a payment has ended, not shorter than the retention of
    events. 0 keeps them forever.
    """

    seal_payer_data: bool = False
    """Encrypt e-mail addresses, metadata and events with the key ring."""

    # Chains. Endpoints are separated by commas and may contain keys; "" disables a chain.
    rpc_ethereum: SecretStr = SecretStr("")
    """Endpoints of Ethereum, separated by commas. If empty, the chain is not watched."""
    rpc_bsc: SecretStr = SecretStr("")
    """Endpoints of BNB Smart Chain."""
    rpc_native: SecretStr = SecretStr("")
    """Endpoints of the native chain."""
    signer_ethereum: SecretStr = SecretStr("")
    """URL of the signer for refunds on Ethereum. If empty, refunds on the chain wait."""
    signer_bsc: SecretStr = SecretStr("")
    """URL of the signer for refunds on BNB Smart Chain."""
    signer_native: SecretStr = SecretStr("")
    """URL of the signer for refunds on the native chain."""
    chain_any_endpoints: bool = False
    """Allow a single endpoint, and `http` to endpoints and signers on other machines, outside a
    sandbox. `payintent doctor` warns about it.
    """
    chain_poll_ethereum_s: Interval = 6.0
    """Poll interval of Ethereum while a session or refund is pending."""
    chain_poll_s: Interval = 2.0
    """Poll interval of other chains while a session or refund is pending."""
    chain_poll_idle_s: Interval = 60.0
    """Poll interval while nothing is pending, at most a third of `PAYINTENT_CHAIN_WATCHED_S`."""
    chain_watched_s: Interval = 180.0
    """How long the methods of a chain are offered after a successful check."""
    chain_behind_max_s: Seconds = 600.0
    """Maximum age of a chain's latest block. If it is older, the chain's methods are not offered.
    0 disables the check, for chains that only create blocks on demand.
    """

    # Workers
    expire_every_s: Interval = 1.0
    """Interval between checks for expired payments."""
    expire_batch_max: Batch = 500
    """Payments that one transaction expires."""
    measure_every_s: Interval = 15.0
    """Interval between measurements for the backlog metrics."""
    inquire_every_s: Interval = 1.0
    """Interval between checks for sessions to query at their gateways."""
    inquire_batch_max: Batch = 50
    """Sessions that are claimed at once."""
    refund_every_s: Interval = 1.0
    """Interval between checks for refunds to send or query."""
    prune_every_s: Interval = 60.0
    """Interval between deletions of data beyond its retention."""
    prune_batch_max: Batch = 1_000
    """Rows that one statement deletes."""

    # Gateways' settlement files, in a folder per account
    settlement_folder: Folder = ""
    """Absolute path of the folder with gateways' settlement files. If empty, no folder is read."""
    settlement_s3_url: BaseUrl = ""
    """Bucket and prefix in an S3-compatible store, such as
    `https://s3.ap-southeast-1.amazonaws.com/settlements`. If empty, no bucket is read.
    """
    settlement_s3_region: str = "us-east-1"
    """Region of the bucket."""
    settlement_s3_key_id: str = ""
    """ID of an access key that may list and read the bucket."""
    settlement_s3_secret_key: SecretStr = SecretStr("")
    """Secret of the access key."""
    reconcile_every_s: Interval = 300.0
    """Interval between checks for settlement files, and for contracts that are due for comparison.
    """

    # Webhooks
    webhook_networks: PrivateNetworks = ""
    """Private networks in which webhook endpoints are allowed, separated by commas."""
    webhook_ports: PortNumbers = ""
    """Ports that webhook endpoints may use in addition to 80, 443, 8080 and 8443, separated by
    commas.
    """
    webhook_timeout_s: Timeout = 15.0
    """Timeout of a delivery attempt, from the name lookup to the last byte."""
    webhook_dns_timeout_s: Timeout = 2.0
    """Timeout of the name lookup."""
    webhook_connect_timeout_s: Timeout = 3.0
    """Timeout of the connection."""
    webhook_answer_bytes_max: Size = 16 * 1024
    """Bytes of a response that are read."""
    webhook_answer_kept_bytes_max: Annotated[int, Field(ge=0, le=1024**2)] = 2 * 1024
    """Bytes of a response that are stored."""
    webhook_poll_s: Interval = 0.25
    """Poll interval of the outbox, in addition to notifications."""
    webhook_sockets_max: Annotated[int, Field(ge=1, le=100_000)] = 2_048
    """Connections of one worker process to all endpoints."""
    webhook_lease_s: Interval = 45.0
    """After this time another worker may send a delivery again. Must be longer than
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
            raise ValueError("PAYINTENT_SMTP_SECURITY may only be none for a local mail server")
        if self.smtp_user and self.smtp_security == "none":
            raise ValueError("PAYINTENT_SMTP_USER needs PAYINTENT_SMTP_SECURITY starttls or tls")
        if 0 < self.events_days < FEED_DAYS:
            raise ValueError(
                f"PAYINTENT_EVENTS_DAYS must be 0 or at least {FEED_DAYS}, for the event feed"
            )
        if self.payer_details_days and not 0 < self.events_days <= self.payer_details_days:
            raise ValueError(
                "PAYINTENT_EVENTS_DAYS must not exceed PAYINTENT_PAYER_DETAILS_DAYS, because "
                "events contain metadata"
            )
        if self.webhook_lease_s <= self.webhook_timeout_s:
            raise ValueError("PAYINTENT_WEBHOOK_LEASE_S must exceed PAYINTENT_WEBHOOK_TIMEOUT_S")
        return self

    def connections_per_process(self, processes: int) -> int:
        """Return the number of database connections for each of several processes."""
        share = ceil(self.database_connections_max / processes)
        return max(share, min(_CONNECTIONS_MIN, self.database_connections_max))

    def per_process(self, processes: int) -> Self:
        """Return the settings for each of several processes of an `api` or `worker` command."""
        connections = self.connections_per_process(processes)
        return self.model_copy(update={"database_connections_max": connections})

    @property
    def direct_url(self) -> str:
        return self.database_direct_url or self.database_url

    @property
    def pages_base(self) -> str:
        return self.checkout_base or f"{web_origin(self.api_base) or ''}/c"

    @property
    def portal_address(self) -> str:
        return self.portal_base or f"{web_origin(self.api_base) or ''}/merchant"

    @property
    def sends_mail(self) -> bool:
        return bool(self.smtp_host)

    @property
    def retention(self) -> dict[RetentionRule, int]:
        """The retention period of each rule in days; 0 disables deletion."""
        return {
            RetentionRule.ATTEMPTS: self.attempts_days,
            RetentionRule.EVENTS: self.events_days,
            RetentionRule.PAYER_ADDRESSES: self.payer_addresses_days,
            RetentionRule.PAYER_DETAILS: self.payer_details_days,
            # Events contain the payer too, so payers are kept at least as long as events.
            RetentionRule.PAYERS: max(self.payers_days, self.events_days)
            if self.payers_days and self.events_days
            else 0,
        }

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """The TLS context for outgoing requests; None: the system's certificate authorities."""
        return make_tls_context(self.ca_file) if self.ca_file else None

    @property
    def buyer_calls(self) -> RateLimit | None:
        """The rate limit for a gateway account's calls that buyers cause; None if unlimited."""
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
