"""The facts of each provider of models, once: what a spec may say of it, and what the service needs to reach it.

To add a provider, write its adapter in `app/llm` and add its record, and its name in `ProviderKind`, here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

ProviderKind = Literal["anthropic", "openai", "bedrock", "vertex", "scripted", "mock", "noop"]

_FIELDS: Final = ("apiKey", "apiKeyEnv", "baseUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A provider that is reached over the network. Its adapter is the module `app.llm.<kind>`, its extra is `<kind>`."""

    host: str
    """The host of its API; `{region}` is the region of the provider."""
    region_hosts: Mapping[str, str] = field(default_factory=dict)
    """The hosts of regions that `host` does not fit."""
    options: Mapping[str, str]
    """The fields of a ProviderSpec that its adapter takes, and the names of `build`'s parameters for them."""
    required: Mapping[str, str] = field(default_factory=dict)
    """The fields that a spec must set, and what to say if one is missing."""
    host_fields: frozenset[str] = frozenset()
    """The required fields that only name the host, so that a spec with a `baseUrl` can leave them out."""
    key_env: str | None = None
    """The operator's variable with a key, for specs without one. A vendor without it needs a declaration with a key."""
    url_env: str | None = None
    """The operator's variable with the address that `key_env` is sent to."""
    price_table: str
    """The provider in the price table (`genai-prices`)."""
    telemetry_name: str
    """The value of `gen_ai.provider.name` in the GenAI conventions of OpenTelemetry."""

    def host_in(self, region: str | None) -> str:
        """Return the host of the vendor's API in a region."""
        return self.region_hosts.get(region or "") or self.host.format(region=region)

    @property
    def fields(self) -> frozenset[str]:
        """The fields that a ProviderSpec of this kind may have, besides `kind`."""
        return frozenset({*_FIELDS, *self.options})


VENDORS: Final[Mapping[str, Vendor]] = {
    "anthropic": Vendor(
        host="api.anthropic.com",
        options={"idleTimeoutS": "idle_timeout_s"},
        key_env="ANTHROPIC_API_KEY",
        url_env="ANTHROPIC_BASE_URL",
        price_table="anthropic",
        telemetry_name="anthropic",
    ),
    "openai": Vendor(
        host="api.openai.com",
        options={"idleTimeoutS": "idle_timeout_s"},
        key_env="OPENAI_API_KEY",
        url_env="OPENAI_BASE_URL",
        price_table="openai",
        telemetry_name="openai",
    ),
    "bedrock": Vendor(
        host="bedrock-runtime.{region}.amazonaws.com",
        options={"idleTimeoutS": "idle_timeout_s", "region": "region", "credentials": "credentials"},
        required={"region": "it names the host, such as 'us-east-1'"},
        host_fields=frozenset({"region"}),
        price_table="aws",
        telemetry_name="aws.bedrock",
    ),
    "vertex": Vendor(
        host="{region}-aiplatform.googleapis.com",
        region_hosts={
            "global": "aiplatform.googleapis.com",
            "us": "aiplatform.us.rep.googleapis.com",
            "eu": "aiplatform.eu.rep.googleapis.com",
        },
        options={"idleTimeoutS": "idle_timeout_s", "region": "region", "project": "project"},
        required={
            "region": "it is a part of the address, such as 'us-east5'",
            "project": "name the Google Cloud project by its id",
        },
        price_table="google",
        telemetry_name="gcp.vertex_ai",
    ),
}

MODEL_FREE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "mock": frozenset({"tokens"}),
    "scripted": frozenset(),
    "noop": frozenset(),
}
"""The providers that call no model, and the fields that a ProviderSpec of each may have."""

PROVIDER_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    **{kind: vendor.fields for kind, vendor in VENDORS.items()},
    **MODEL_FREE_FIELDS,
}
"""The fields that a ProviderSpec of each kind may have, besides `kind`."""

UNDECLARED_PROVIDERS: Final = frozenset(
    {*MODEL_FREE_FIELDS, *(kind for kind, vendor in VENDORS.items() if vendor.key_env)}
)
"""The providers that an agent can name without a declaration in the spec."""
