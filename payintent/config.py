"""Every setting and every limit, each with its unit and its default."""

from decimal import Decimal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from payintent.domain.rate_limit import RateLimit


class Settings(BaseSettings):
    """Read once from the environment: `PAYINTENT_…`, and `DATABASE_URL`."""

    model_config = SettingsConfigDict(env_prefix="PAYINTENT_", frozen=True, extra="ignore")

    # Database
    database_url: str = Field(
        repr=False,  # it holds a password
        validation_alias=AliasChoices("database_url", "DATABASE_URL", "PAYINTENT_DATABASE_URL"),
    )
    database_direct_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=AliasChoices(
            "database_direct_url", "DATABASE_DIRECT_URL", "PAYINTENT_DATABASE_DIRECT_URL"
        ),
        description="past a pooler, for LISTEN, migrations and locks; default: database_url",
    )
    database_read_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=AliasChoices(
            "database_read_url", "DATABASE_READ_URL", "PAYINTENT_DATABASE_READ_URL"
        ),
        description="a replica, for lists and reports; default: none",
    )
    database_read_lag_max_s: float = 5.0  # how old what a list shows may be
    database_pooled: bool = False  # behind PgBouncer: no statement cache
    database_connections_max: int = 32  # of one process
    database_acquire_timeout_s: float = 5.0
    database_statement_timeout_ms: int = 5_000
    database_lock_timeout_ms: int = 2_000  # how long a duplicate waits for the first

    # Secrets: no defaults, in no environment
    pepper: SecretStr  # base64 of 32 bytes: digests of API keys
    keyring: SecretStr  # `id:base64,id:base64`, 32 bytes each; the first one writes

    # Places
    checkout_base: str = ""  # "" leaves checkout_url out
    api_base: str = "http://127.0.0.1:8080/v1"  # our address for gateways; its origin has the flags
    sandbox: bool = False  # loopback and private addresses may receive webhooks

    # The edge network, which knows the viewer's country; trusted only with the secret
    edge_country_header: str = "CloudFront-Viewer-Country"  # or CF-IPCountry
    edge_secret_header: str = "X-Edge-Secret"  # noqa: S105 - a header's name
    edge_secret: SecretStr = SecretStr("")  # "" trusts no sender
    edge_trusted_proxies: str = ""  # addresses and networks, separated by commas

    # HTTP in
    body_bytes_max: int = 64 * 1024
    header_bytes_max: int = 32 * 1024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0  # from the headers to the end of the body
    callback_bytes_max: int = 256 * 1024
    connections_max: int = 4_000  # of one process, or as many as it may open files
    requests_max: int = 64  # under way at once: of merchants, buyers and gateways, each
    requests_waiting_max: int = 512  # more are shed at once
    request_wait_s: float = 1.0  # for a place, then the request is shed
    readiness_cache_s: float = 1.0  # how old an answer of /readyz may be
    #: After SIGTERM, how long requests are accepted while /readyz is 503; longer than a proxy keeps
    #: an idle connection, and than it takes a balancer to see the 503.
    drain_s: float = Field(default=5.0, ge=0, le=15)

    # Payments
    amount_min: Decimal = Decimal(0)
    amount_max: Decimal = Decimal(10) ** 9
    metadata_bytes_max: int = 16 * 1024
    metadata_levels_max: int = 32
    api_key_cache_s: float = 1.0
    policy_cache_s: float = 1.0  # how old fraud rules and restrictions may be

    # Rate limits, where a merchant has none of its own; none in the sandbox
    rate_create_per_s: int = 500
    rate_create_burst: int = 1_000
    rate_read_per_s: int = 1_000
    rate_read_burst: int = 2_000
    checkout_per_address_per_s: int = 20  # behind a declared proxy, per process; 0: no limit
    checkout_per_address_burst: int = 100
    failed_logins_per_address_per_s: int = 10  # without a valid key, per process; 0: no limit
    failed_logins_per_address_burst: int = 100
    fraud_decisions_days: int = 90  # how long denials are kept

    # Gateways
    gateway_origins: str = ""  # beside those the adapters know, separated by commas
    gateway_timeout_s: float = 15.0
    gateway_answer_bytes_max: int = 256 * 1024
    buyer_calls_per_s: int = 100  # caused by buyers, for one gateway account; 0: no limit
    buyer_calls_burst: int = 500
    #: A payment past its deadline waits so long for a silent gateway; with the workers' own
    #: intervals, and an answer within a second, it is EXPIRED within 30 s.
    closing_patience_s: float = 25.0
    authorising_patience_hours: float = 24.0  # and so long for one that answers that it is deciding
    unknown_callback_hours: int = 24
    callback_bodies_days: int = 30  # how long the bodies of applied callbacks are kept

    # Chains: endpoints of each, separated by commas; they may contain keys. "" is not watched
    rpc_ethereum: SecretStr = SecretStr("")
    rpc_bsc: SecretStr = SecretStr("")
    rpc_native: SecretStr = SecretStr("")
    signer_ethereum: SecretStr = SecretStr("")  # one address; "" refunds nothing on that chain
    signer_bsc: SecretStr = SecretStr("")
    signer_native: SecretStr = SecretStr("")
    chain_any_endpoints: bool = False  # a single one, or http to other machines, as in the sandbox
    chain_poll_ethereum_s: float = 6.0  # while a session or refund waits for it
    chain_poll_s: float = 2.0  # the other chains
    chain_poll_idle_s: float = 60.0  # while none does
    chain_watched_s: float = 180.0  # after a check, a chain's methods are offered for so long
    chain_behind_max_s: float = 600.0  # how old the newest block may be; 0: any age will do

    # Workers
    expire_every_s: float = 1.0
    expire_batch_max: int = 500
    measure_every_s: float = 15.0
    inquire_every_s: float = 1.0
    inquire_batch_max: int = 50
    refund_every_s: float = 1.0
    prune_every_s: float = 60.0
    prune_batch_max: int = 1_000

    # Webhooks
    webhook_timeout_s: float = 15.0
    webhook_dns_timeout_s: float = 2.0
    webhook_connect_timeout_s: float = 3.0
    webhook_answer_bytes_max: int = 16 * 1024
    webhook_answer_kept_bytes_max: int = 2 * 1024
    webhook_poll_s: float = 0.25
    webhook_sockets_max: int = 2_048
    webhook_lease_s: float = 45.0  # longer than a delivery may take

    # Logs
    log_level: str = "INFO"

    @property
    def buyer_calls(self) -> RateLimit | None:
        """Return the limit of calls to one gateway account that buyers cause; None: no limit."""
        per_s = self.buyer_calls_per_s
        return RateLimit(per_s, self.buyer_calls_burst) if per_s else None

    @property
    def more_gateway_origins(self) -> list[str]:
        """Return origins allowed for accounts, beside those that the adapters know."""
        return [origin.strip() for origin in self.gateway_origins.split(",") if origin.strip()]

    @property
    def endpoints(self) -> dict[str, list[str]]:
        """Return the endpoints of the chains that have any; the URLs may contain keys."""
        by_chain = {"ethereum": self.rpc_ethereum, "bsc": self.rpc_bsc, "native": self.rpc_native}
        split = {
            slug: [url.strip() for url in urls.get_secret_value().split(",") if url.strip()]
            for slug, urls in by_chain.items()
        }
        return {slug: urls for slug, urls in split.items() if urls}

    @property
    def signers(self) -> dict[str, str]:
        """Return the signers of the chains that have one; their URLs may contain keys."""
        by_chain = {
            "ethereum": self.signer_ethereum,
            "bsc": self.signer_bsc,
            "native": self.signer_native,
        }
        urls = {slug: url.get_secret_value().strip() for slug, url in by_chain.items()}
        return {slug: url for slug, url in urls.items() if url}
