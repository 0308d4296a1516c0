"""Models and their providers."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from plangate.spec.base import MAX_KEY_CHARS, Count, SpecModel, Url
from plangate.spec.transports import HeaderValue
from plangate.spec.vendors import ProviderKind

DAY_S: Final = 24 * 3600
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")
_PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")


class ModelSpec(SpecModel):
    """A model: its id at the vendor and the name of a provider.

    `thinking` and `extra` go into the vendor's request as they are.

    Args:
        id: What the vendor calls it.
        provider: The name of a provider of the runtime, or one of the vendors that need no declaration.
        max_output_tokens: The longest answer.
        thinking: What the vendor's request says about reasoning.
        extra: What else goes into the vendor's request.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ModelSpec(id="m-1", provider="openai", max_output_tokens=500).to_wire()
        {'id': 'm-1', 'provider': 'openai', 'maxOutputTokens': 500}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"id", "provider"})

    id: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)]
    provider: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)] = "anthropic"
    max_output_tokens: Count | None = None
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


def _region(value: str) -> str:
    """Check the region, which becomes part of the host that a key is sent to."""
    if not _REGION.fullmatch(value):
        raise PydanticCustomError(
            "region",
            "{value} is not a region: use lower-case letters, digits and '-', such as us-east-1 or global",
            {"value": repr(value)},
        )
    return value


def _project(value: str) -> str:
    if not _PROJECT.fullmatch(value):
        raise PydanticCustomError(
            "project",
            "{value} is not a project of Google Cloud: use its id, such as my-project-123, not its display name",
            {"value": repr(value)},
        )
    return value


class ProviderSpec(SpecModel):
    """A provider by name. `kind` unset: the name is the kind.

    `api_key` names a secret or, until registration, is the key itself; `api_key_env` is a variable that the
    operator listed. For `bedrock` the key is a Bedrock API key, or IAM keys: the JSON that `aws configure
    export-credentials` prints. For `vertex` it is an access token, or the JSON of a service account's key.
    A provider without a key never uses the operator's account; `bedrock` does if `credentials` says so and
    the operator allows it for the tenant.

    Args:
        kind: The kind of the provider, such as `"anthropic"`; unset, its name.
        api_key: `{"secret": name}`, or the key.
        api_key_env: The name of a variable of the service.
        base_url: Where requests go, in place of the vendor's own address.
        region: Of `bedrock` and `vertex`: where the model runs, such as `us-east-1` or `global`.
        project: Of `vertex`: the id of the Google Cloud project.
        credentials: Of `bedrock`, in place of a key: `"operator"`, the AWS identity of the service.
        idle_timeout_s: The longest silence of a stream, in seconds.
        tokens: In how many parts `mock` streams its text.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ProviderSpec(kind="openai", api_key={"secret": "openai"}).to_wire()
        {'kind': 'openai', 'apiKey': {'secret': 'openai'}}
    """

    kind: ProviderKind | None = None
    api_key: HeaderValue | None = None
    api_key_env: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)] | None = None
    base_url: Url | None = None
    region: Annotated[str, Field(json_schema_extra={"maxLength": 32}), AfterValidator(_region)] | None = None
    project: Annotated[str, Field(json_schema_extra={"maxLength": 63}), AfterValidator(_project)] | None = (
        None
    )
    credentials: Literal["operator"] | None = None
    idle_timeout_s: Annotated[float, Field(gt=0, le=DAY_S, strict=True, allow_inf_nan=False)] | None = None
    tokens: Count | None = None
