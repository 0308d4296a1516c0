"""Settings, read once from the environment when a process starts. Nothing below assembly sees them."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any

from plangate.defaults import default_data_dir
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.base.egress_policy import DNS_LOOKUPS, TENANT_DNS_LOOKUPS, EgressPolicy
from app.base.keys import CELL_NAME
from app.base.postgres.database import TENANT_ID
from app.base.public_url import PublicUrl

MIB = 1024 * 1024


class Settings(BaseSettings):
    """Every variable that the service reads. docs/settings.md is checked against this class."""

    model_config = SettingsConfigDict(env_prefix="PLANGATE_", frozen=True, hide_input_in_errors=True)

    database_url: Annotated[
        str | None,
        Field(
            validation_alias="DATABASE_URL",
            description="A Postgres 15 or newer; without it one of its own is started.",
        ),
    ] = None
    migrate_url: Annotated[
        str | None, Field(description="The login that owns the schema, where DATABASE_URL is not it.")
    ] = None
    backup_url: Annotated[
        str | None,
        Field(
            description="The connection string of the role that `plangate backup` uses. The role needs BYPASSRLS."
        ),
    ] = None
    listen_url: Annotated[
        str | None,
        Field(description="A direct address for LISTEN, where DATABASE_URL goes through a pooler."),
    ] = None
    synchronous_standby: Annotated[
        bool,
        Field(
            description="Whether only a synchronous standby is ever promoted, so that a promotion loses no commit."
        ),
    ] = False
    database_wait_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds that a process waits when it starts while the database refuses connections or recovers.",
        ),
    ] = 60
    data_dir: Annotated[
        Path, Field(description="Where the embedded Postgres and the operator's key live.")
    ] = Field(default_factory=default_data_dir)
    blobs: Annotated[
        str | None,
        Field(
            description="Where the bodies of files are: a directory, or s3://bucket/prefix. Beside the embedded "
            "Postgres without it."
        ),
    ] = None
    host: Annotated[str, Field(description="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="The port to listen on; 0 takes a free one.")] = (
        8700
    )
    public_url: Annotated[
        str | None,
        Field(
            description="The address at which clients reach the service, such as https://example.com/plangate, if a reverse "
            "proxy is in front."
        ),
    ] = None
    cell: Annotated[
        str | None,
        Field(
            description="The name of this installation among several cells, such as eu1. It is part of the keys, sessions "
            "and tickets that this installation issues."
        ),
    ] = None
    cors_origins: Annotated[
        list[str],
        NoDecode,
        Field(
            description="Origins such as https://app.example.com, comma-separated, whose pages may call the API with a key."
        ),
    ] = []
    session_s: Annotated[
        int,
        Field(ge=60, le=30 * 86_400, description="Seconds after which a browser's session ends."),
    ] = 43_200
    drain_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=600,
            description="Seconds that `plangate serve` keeps serving after SIGTERM, with /readyz at 503. The default is 5, "
            "or 0 on a loopback address.",
        ),
    ] = None
    secret_key: Annotated[
        str | None,
        Field(
            min_length=32,
            description="At least 32 characters; seals secrets. All processes of a database share it.",
        ),
    ] = None
    slots: Annotated[
        int, Field(ge=0, le=10_000, description="How many queries a process works on at once.")
    ] = 64
    lease_s: Annotated[
        float,
        Field(
            ge=1,
            le=300,
            description="Seconds that a process may be silent before others take its queries over.",
        ),
    ] = 10
    child_processes: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="The maximum number of child processes, for queries that were in flight when processes died.",
        ),
    ] = 8
    child_memory_mb: Annotated[
        int, Field(ge=256, le=1_000_000, description="Memory in MiB above which a child process is ended.")
    ] = 1024
    pool_size: Annotated[int, Field(ge=2, le=500, description="Database connections of a process.")] = 10
    loop_blocked_ms: Annotated[
        int,
        Field(
            ge=10,
            le=60_000,
            description="Milliseconds of lag from which the event loop counts as blocked and the log shows what blocks it.",
        ),
    ] = 100
    allow_hosts: Annotated[
        list[str],
        NoDecode,
        Field(
            description="Hosts (or host:port) that tenants may reach although they are private, comma-separated."
        ),
    ] = []
    source_paths: Annotated[
        list[str],
        NoDecode,
        Field(
            description="Files and directories that data sources of every tenant may read, absolute, comma-separated."
        ),
    ] = []
    model_streams: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="Streams of model calls that are open at once. The default is 16 for each slot. One tenant gets at "
            "most half.",
        ),
    ] = None
    model_line_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=64 * MIB,
            description="The maximum size in bytes of a line, an event or a frame that a provider sends.",
        ),
    ] = MIB
    model_bytes_per_token: Annotated[
        int,
        Field(
            ge=64,
            le=MIB,
            description="Bytes that a provider may send for each output token that was requested.",
        ),
    ] = 4096
    tenant_model_bytes_per_s: Annotated[
        int,
        Field(
            ge=1024,
            le=1024 * MIB,
            description="Bytes a second that are read from providers for one tenant. A faster provider is slowed down.",
        ),
    ] = 4 * MIB
    dns_lookups: Annotated[
        int, Field(ge=1, le=10_000, description="DNS lookups in progress at once, for all tenants together.")
    ] = DNS_LOOKUPS
    tenant_dns_lookups: Annotated[
        int, Field(ge=1, le=10_000, description="DNS lookups in progress at once for one tenant.")
    ] = TENANT_DNS_LOOKUPS
    mcp_lists: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="MCP servers asked for their tools at once, for all tenants together.",
        ),
    ] = 64
    tenant_mcp_lists: Annotated[
        int, Field(ge=1, le=10_000, description="MCP servers asked for their tools at once for one tenant.")
    ] = 16
    provider_envs: Annotated[
        dict[str, str],
        NoDecode,
        Field(description="VARIABLE=host pairs, comma-separated: keys of the operator that specs may name."),
    ] = {}
    aws_tenants: Annotated[
        list[str],
        NoDecode,
        Field(
            description="Tenants, comma-separated, whose providers of kind bedrock may use the AWS identity of the service."
        ),
    ] = []
    metrics_token: Annotated[
        str | None,
        Field(
            min_length=16,
            description="A bearer token of at least 16 characters that reads /metrics, nothing else.",
        ),
    ] = None
    worker_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="Where `plangate worker` answers /healthz, /readyz and /metrics."),
    ] = None
    max_connections: Annotated[
        int | None,
        Field(
            ge=8,
            description="Client connections that a process has at once. The default is what the limit on open files allows, "
            "at most 20000.",
        ),
    ] = None
    max_connections_per_peer: Annotated[
        int | None,
        Field(
            ge=0,
            description="Connections from one address (IPv6: one /64), except loopback. The default is half of all; 0 means "
            "no bound.",
        ),
    ] = None
    trusted_proxies: Annotated[
        list[str],
        NoDecode,
        Field(
            description="Addresses or networks of load balancers, comma-separated. They have no bound per peer, and their "
            "X-Forwarded-For is trusted."
        ),
    ] = []
    head_timeout_s: Annotated[
        float, Field(ge=0.1, le=300, description="Seconds within which the head of a request must arrive.")
    ] = 10
    max_head_bytes: Annotated[
        int, Field(ge=8192, le=1048576, description="The maximum size in bytes of the head of a request.")
    ] = 65536
    body_timeout_s: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="Seconds over which the rate of a body is measured. A body that is too slow ends its connection.",
        ),
    ] = 30
    body_min_bytes_per_s: Annotated[
        int,
        Field(
            ge=1,
            description="Bytes a second of a body that must arrive, on average over PLANGATE_BODY_TIMEOUT_S, while the "
            "service reads it.",
        ),
    ] = 500
    unknown_keys: Annotated[
        int,
        Field(
            ge=1, le=1_000_000, description="The maximum number of unknown API keys that a process remembers."
        ),
    ] = 10_000
    unknown_key_s: Annotated[
        float, Field(ge=0, le=60, description="Seconds for which an unknown API key is remembered.")
    ] = 5
    unknown_keys_per_client_per_s: Annotated[
        float,
        Field(
            gt=0,
            description="Unknown API keys that one address may try a second. Beyond that, it gets a 429.",
        ),
    ] = 20
    reader_bytes: Annotated[
        int,
        Field(
            ge=256 * 1024,
            le=64 * 1024 * 1024,
            description="Bytes that one HTTP connection may buffer for a client that reads slowly.",
        ),
    ] = 256 * 1024
    stalled_reader_s: Annotated[
        float,
        Field(
            ge=1,
            le=600,
            description="Seconds after which a client that acknowledges no byte of a response is dropped.",
        ),
    ] = 30
    stream_reads: Annotated[
        int | None,
        Field(
            ge=1,
            le=500,
            description="Event streams that read the database at once in one process. The default is a third of the pool.",
        ),
    ] = None
    large_event_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Bytes that the shared copies of events above 32 KiB may take in one process.",
        ),
    ] = 64 * 1024 * 1024
    otlp_endpoint: Annotated[
        str | None,
        Field(
            validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
            description="Where spans and model metrics go, by OTLP over HTTP; needs the extra `telemetry`.",
        ),
    ] = None
    telemetry_content: Annotated[
        bool, Field(description="Whether spans carry prompts, answers, arguments and results.")
    ] = False
    log_level: Annotated[
        str, Field(pattern="(?i)^(debug|info|warning|error)$", description="debug, info, warning or error.")
    ] = "info"

    def explicit_values(self) -> dict[str, Any]:
        """Return these settings as JSON values from which `Settings.model_validate` makes them again."""
        values = self.model_dump(mode="json")
        fields = type(self).model_fields
        return {str(fields[name].validation_alias or name): value for name, value in values.items()}

    @field_validator("database_url", "migrate_url", "backup_url", "listen_url")
    @classmethod
    def _postgres(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("must begin with postgresql://; without a database, leave the variable out")
        return value

    @field_validator("data_dir")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser()  # no shell expands `~` in a unit file

    @field_validator("allow_hosts")
    @classmethod
    def _allowed(cls, value: list[str]) -> list[str]:
        EgressPolicy.from_hosts(value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        for text in value:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise ValueError(
                    "must be addresses or networks such as 10.0.0.0/8, separated by commas"
                ) from error
        return value

    @field_validator("source_paths")
    @classmethod
    def _absolute(cls, value: list[str]) -> list[str]:
        for path in value:
            if not Path(path).is_absolute() or Path(path) == Path("/"):
                raise ValueError("must be absolute paths below /, separated by commas")
        return value

    @field_validator("public_url")
    @classmethod
    def _public(cls, value: str | None) -> str | None:
        return None if value is None else str(PublicUrl.parse(value))

    @field_validator("cell")
    @classmethod
    def _cell(cls, value: str | None) -> str | None:
        if value is not None and not CELL_NAME.fullmatch(value):
            raise ValueError(
                "must be 1 to 32 lowercase letters, digits and hyphens, with no hyphen at either end"
            )
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: list[str]) -> list[str]:
        message = "must be origins such as https://app.example.com, separated by commas; * is not one"
        for text in value:
            try:
                parsed = PublicUrl.parse(text)
            except ValueError as error:
                raise ValueError(message) from error
            if parsed.origin != text:
                raise ValueError(message)
        return value

    @field_validator("aws_tenants")
    @classmethod
    def _tenants(cls, value: list[str]) -> list[str]:
        if not all(TENANT_ID.match(text) for text in value):
            raise ValueError("must be ids of tenants, separated by commas; * is not one")
        return value

    @field_validator(
        "allow_hosts", "aws_tenants", "trusted_proxies", "source_paths", "cors_origins", mode="before"
    )
    @classmethod
    def _hosts(cls, value: object) -> object:
        return [h.strip() for h in value.split(",") if h.strip()] if isinstance(value, str) else value

    @field_validator("provider_envs", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [p.strip().partition("=") for p in value.split(",") if p.strip()]
        if any(not host for _, _, host in pairs):
            raise ValueError("must be VARIABLE=host, separated by commas")
        return {name.strip(): host.strip() for name, _, host in pairs}
