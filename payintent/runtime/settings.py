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
    """Settings from the environment variables `PAYINTENT_…` and `DATABASE_URL`."""

    model_config = SettingsConfigDict(env_prefix="PAYINTENT_", frozen=True, extra="ignore")

    # Database
    database_url: str = Field(
        min_length=1,
        repr=False,  # it contains a password
        validation_alias=_database_names("database_url"),
    )
    database_direct_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_database_names("database_direct_url"),
        description="bypasses a pooler for LISTEN, migrations and locks; default: database_url",
    )
    database_read_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=_database_names("database_read_url"),
        description="a replica for lists and reports; default: none",
    )
    database_read_lag_max_s: Seconds = 5.0  # the maximum age of listed data
    database_pooled: bool = False  # behind PgBouncer: no statement cache
    #: Per `api` or `worker` command, divided among its processes.
    database_connections_max: Annotated[int, Field(ge=1, le=1_000)] = 32
    database_acquire_timeout_s: Timeout = 5.0
    database_statement_timeout_ms: Milliseconds = 5_000
    database_lock_timeout_ms: Milliseconds = 2_000  # a duplicate request waits this long

    # Secrets, which have no defaults in any environment
    pepper: SecretStr  # base64 of 32 bytes, for digests of API keys
    keyring: SecretStr  # `name:base64,name:base64`, 32 bytes each; the first key encrypts

    # Our URLs
    checkout_base: BaseUrl = ""  # "": responses omit checkout_url
    api_base: BaseUrl = "http://127.0.0.1:8080/v1"  # for gateways; its origin serves flags
    console_base: Origin = ""  # the console behind a TLS proxy; "": loopback, without TLS
    #: The merchant portal. Passkeys are permanently bound to its host. "": `/merchant` at the
    #: origin of api_base.
    portal_base: BaseUrl = ""
    packages_dir: str = ""  # packages for merchants; "": the packages of the release
    #: The start of the public part of new API keys, which lets a proxy route to an installation.
    key_mark: KeyMark = "00"
    sandbox: bool = False  # allow webhooks to loopback and private addresses

    # Console sign-in with OpenID Connect; without an issuer, operators need tokens
    oidc_issuer: Issuer = ""  # such as https://login.example.com/realms/staff
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_claim: str = "groups"  # the claim with the roles, a string or a list of strings
    oidc_roles: ClaimRoles = ""  # `value=role,value=role`

    # Mail for invitations and receipts; without a host, no mail is sent
    smtp_host: MailHost = ""
    smtp_port: PortNumber = 587
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_user: str = ""
    smtp_password: SecretStr = SecretStr("")
    smtp_from: MailAddress = ""

    # The edge network reports the viewer's country. It is only trusted if it sends the secret.
    edge_country_header: str = "CloudFront-Viewer-Country"  # or CF-IPCountry
    edge_secret_header: str = "X-Edge-Secret"  # noqa: S105 - a header's name
    edge_secret: SecretStr = SecretStr("")  # "": no sender is trusted
    edge_trusted_proxies: Networks = ""  # addresses and networks, separated by commas
    #: The header with client addresses. "": both are accepted, but they must agree.
    edge_address_header: Literal["", "X-Forwarded-For", "Forwarded"] = ""

    # Incoming HTTP
    body_bytes_max: Size = 64 * 1024
    header_bytes_max: Size = 32 * 1024
    header_timeout_s: Timeout = 10.0
    body_timeout_s: Timeout = 30.0  # from the headers to the end of the body
    callback_bytes_max: Size = 256 * 1024
    connections_max: Count = 4_000  # per process, limited by its open files
    requests_max: Count = 64  # concurrent requests per lane: merchants, buyers, gateways, others
    requests_waiting_max: Limit = 512  # per lane; further requests are shed at once
    request_wait_s: Seconds = 1.0  # the maximum wait for a slot before the request is shed
    readiness_cache_s: Seconds = 1.0  # for /readyz
    #: How long requests are accepted after SIGTERM, while /readyz returns 503. Must exceed the time
    #: that a proxy keeps idle connections, and that a load balancer needs to notice the 503.
    drain_s: Annotated[float, Field(ge=0, le=15)] = 5.0

    # TLS of outgoing requests to gateways, webhook endpoints, chain endpoints and signers
    ca_file: CaFile = ""  # additional trusted certificate authorities

    # Tracing, with the extra `otel`
    otlp_endpoint: BaseUrl = ""  # a collector such as http://127.0.0.1:4318; "": no tracing
    trace_share: Annotated[float, Field(ge=0, le=1)] = 1.0  # the share of payments that is traced

    # Payments
    amount_min: Annotated[Decimal, Field(ge=0, le=10**15)] = Decimal(0)
    amount_max: Annotated[Decimal, Field(gt=0, le=10**15)] = Decimal(10) ** 9
    metadata_bytes_max: Annotated[int, Field(ge=2, le=1024**2)] = 16 * 1024
    metadata_levels_max: Annotated[int, Field(ge=1, le=100)] = 32
    api_key_cache_s: Seconds = 1.0
    policy_cache_s: Seconds = 1.0  # for fraud rules and restrictions

    # Default rate limits per merchant; not applied in a sandbox
    rate_create_per_s: Count = 500
    rate_create_burst: Count = 1_000
    rate_read_per_s: Count = 1_000
    rate_read_burst: Count = 2_000
    checkout_per_address_per_s: Limit = 20  # behind a declared proxy, per process; 0: no limit
    checkout_per_address_burst: Count = 100
    failed_logins_per_address_per_s: Limit = 10  # per process; 0: no limit
    failed_logins_per_address_burst: Count = 100
    fraud_decisions_days: Days = 90  # retention of denials
    api_calls_days: Annotated[int, Field(ge=0, le=365)] = 7  # retention; 0 disables recording

    # Gateways
    gateway_calls_days: Days = 30  # retention of logged requests to gateways
    gateway_origins: Origins = ""  # in addition to the adapters' origins, separated by commas
    gateway_timeout_s: Annotated[float, Field(gt=0, le=50)] = 15.0  # below the lease of a session
    gateway_answer_bytes_max: Size = 256 * 1024
    buyer_calls_per_s: Limit = 100  # calls caused by buyers, per gateway account; 0: no limit
    buyer_calls_burst: Count = 500
    #: How long a payment waits for an unresponsive gateway after its deadline. Including the
    #: workers' intervals and a second for the response, the payment is EXPIRED within 30 s.
    closing_patience_s: Seconds = 25.0
    #: How long a payment waits while its gateway reports a pending authorisation.
    authorising_patience_hours: Annotated[float, Field(gt=0, le=8_760)] = 24.0
    unknown_callback_hours: Hours = 24
    callback_bodies_days: Days = 30  # retention of the bodies of applied callbacks

    # Retention; 0 disables deletion
    attempts_days: RetentionDays = 90  # delivery attempts
    events_days: RetentionDays = 365  # events, including payers and metadata
    payer_addresses_days: RetentionDays = 90  # on-chain sender addresses, after a transfer
    payer_details_days: RetentionDays = 730  # e-mail and metadata, after the payment has ended
    payers_days: RetentionDays = 3650  # payer references; afterwards only accounting data remains

    seal_payer_data: bool = False  # encrypt e-mail, metadata and events with the key ring

    # Chains. Endpoints are separated by commas and may contain keys; "" disables a chain.
    rpc_ethereum: SecretStr = SecretStr("")
    rpc_bsc: SecretStr = SecretStr("")
    rpc_native: SecretStr = SecretStr("")
    signer_ethereum: SecretStr = SecretStr("")  # a URL; "" disables refunds on the chain
    signer_bsc: SecretStr = SecretStr("")
    signer_native: SecretStr = SecretStr("")
    chain_any_endpoints: bool = False  # allow a single endpoint, and http to other machines
    chain_poll_ethereum_s: Interval = 6.0  # while a session or refund is pending
    chain_poll_s: Interval = 2.0  # for chains other than Ethereum
    chain_poll_idle_s: Interval = 60.0  # while nothing is pending
    chain_watched_s: Interval = 180.0  # how long methods are offered after a check
    chain_behind_max_s: Seconds = 600.0  # the maximum age of the latest block; 0: no limit

    # Workers
    expire_every_s: Interval = 1.0
    expire_batch_max: Batch = 500
    measure_every_s: Interval = 15.0
    inquire_every_s: Interval = 1.0
    inquire_batch_max: Batch = 50
    refund_every_s: Interval = 1.0
    prune_every_s: Interval = 60.0
    prune_batch_max: Batch = 1_000

    # Gateways' settlement files, in a folder per account
    settlement_folder: Folder = ""  # "": no folder
    settlement_s3_url: BaseUrl = ""  # a bucket with a prefix; "": no bucket
    settlement_s3_region: str = "us-east-1"
    settlement_s3_key_id: str = ""
    settlement_s3_secret_key: SecretStr = SecretStr("")
    reconcile_every_s: Interval = 300.0

    # Webhooks
    webhook_networks: PrivateNetworks = ""  # allowed in addition to public addresses
    webhook_ports: PortNumbers = ""  # allowed in addition to 80, 443, 8080 and 8443
    webhook_timeout_s: Timeout = 15.0
    webhook_dns_timeout_s: Timeout = 2.0
    webhook_connect_timeout_s: Timeout = 3.0
    webhook_answer_bytes_max: Size = 16 * 1024
    webhook_answer_kept_bytes_max: Annotated[int, Field(ge=0, le=1024**2)] = 2 * 1024
    webhook_poll_s: Interval = 0.25
    webhook_sockets_max: Annotated[int, Field(ge=1, le=100_000)] = 2_048
    webhook_lease_s: Interval = 45.0  # longer than a delivery may take

    # Logs
    log_level: LogLevel = "INFO"

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
