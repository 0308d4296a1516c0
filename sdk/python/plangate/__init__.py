"""Describe systems of agents as data, run them on a Plangate service, decide their approvals.

Each name is imported from its module when it is first used: a program that only talks to a service does not pay for the
models of specs.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from plangate.artifacts import Artifacts
    from plangate.authoring.agents import (
        AgentOptions,
        DefinedAgent,
        define_coordinator,
        define_executor,
        define_planner,
        define_specialist,
    )
    from plangate.authoring.dispatchers import ActionDispatcher
    from plangate.authoring.plans import define_plan
    from plangate.authoring.references import DefinedReference, define_reference
    from plangate.authoring.runtimes import DefinedRuntime, define_runtime, define_tenant
    from plangate.authoring.tools import DefinedTool, define_tool
    from plangate.context import CallContext
    from plangate.errors import (
        ApiError,
        Conflict,
        Forbidden,
        Gone,
        InvalidRequest,
        Malformed,
        NotFound,
        PlangateError,
        ServiceNotInstalled,
        ServiceNotStarted,
        ServiceUnavailable,
        TooLarge,
        TooManyRequests,
        Unauthenticated,
    )
    from plangate.journal import QueryEvents
    from plangate.opening import create_runtime
    from plangate.runtime import Runtime
    from plangate.spec.glimpses import glimpse
    from plangate.spec.models import (
        AgentSpec,
        ApprovalOverrides,
        ApprovalPolicies,
        ApprovalRule,
        DisplayAlias,
        LimitsSpec,
        ModelSpec,
        PlanSpec,
        ProviderSpec,
        ReferenceSpec,
        RuntimeSpec,
        TenantSpec,
        ToolAnnotations,
        ToolkitConfig,
        ToolkitSpec,
        ToolSpec,
    )
    from plangate.spec.problems import Problem, SpecInvalid
    from plangate.spec.prompts import LayeredPrompt, augment_prompt_tools, layered_prompt
    from plangate.spec.schemas import normalize_schema
    from plangate.spec.unions import TaggedUnion
    from plangate.states import State

_MODULES = {
    "artifacts": ("Artifacts",),
    "authoring.agents": (
        "AgentOptions",
        "DefinedAgent",
        "define_coordinator",
        "define_executor",
        "define_planner",
        "define_specialist",
    ),
    "authoring.dispatchers": ("ActionDispatcher",),
    "authoring.plans": ("define_plan",),
    "authoring.references": (
        "DefinedReference",
        "define_reference",
    ),
    "authoring.runtimes": (
        "DefinedRuntime",
        "define_runtime",
        "define_tenant",
    ),
    "authoring.tools": (
        "DefinedTool",
        "define_tool",
    ),
    "context": ("CallContext",),
    "errors": (
        "ApiError",
        "Conflict",
        "Forbidden",
        "Gone",
        "InvalidRequest",
        "Malformed",
        "NotFound",
        "PlangateError",
        "ServiceNotInstalled",
        "ServiceNotStarted",
        "ServiceUnavailable",
        "TooLarge",
        "TooManyRequests",
        "Unauthenticated",
    ),
    "journal": ("QueryEvents",),
    "opening": ("create_runtime",),
    "runtime": ("Runtime",),
    "spec.glimpses": ("glimpse",),
    "spec.models": (
        "AgentSpec",
        "ApprovalOverrides",
        "ApprovalPolicies",
        "ApprovalRule",
        "DisplayAlias",
        "LimitsSpec",
        "ModelSpec",
        "PlanSpec",
        "ProviderSpec",
        "ReferenceSpec",
        "RuntimeSpec",
        "TenantSpec",
        "ToolAnnotations",
        "ToolkitConfig",
        "ToolkitSpec",
        "ToolSpec",
    ),
    "spec.problems": (
        "Problem",
        "SpecInvalid",
    ),
    "spec.prompts": (
        "LayeredPrompt",
        "augment_prompt_tools",
        "layered_prompt",
    ),
    "spec.schemas": ("normalize_schema",),
    "spec.unions": ("TaggedUnion",),
    "states": ("State",),
}
_HOMES = {name: f"plangate.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "ActionDispatcher",
    "AgentOptions",
    "AgentSpec",
    "ApiError",
    "ApprovalOverrides",
    "ApprovalPolicies",
    "ApprovalRule",
    "Artifacts",
    "CallContext",
    "Conflict",
    "DefinedAgent",
    "DefinedReference",
    "DefinedRuntime",
    "DefinedTool",
    "DisplayAlias",
    "Forbidden",
    "Gone",
    "InvalidRequest",
    "LayeredPrompt",
    "LimitsSpec",
    "Malformed",
    "ModelSpec",
    "NotFound",
    "PlanSpec",
    "PlangateError",
    "Problem",
    "ProviderSpec",
    "QueryEvents",
    "ReferenceSpec",
    "Runtime",
    "RuntimeSpec",
    "ServiceNotInstalled",
    "ServiceNotStarted",
    "ServiceUnavailable",
    "SpecInvalid",
    "State",
    "TaggedUnion",
    "TenantSpec",
    "TooLarge",
    "TooManyRequests",
    "ToolAnnotations",
    "ToolSpec",
    "ToolkitConfig",
    "ToolkitSpec",
    "Unauthenticated",
    "augment_prompt_tools",
    "create_runtime",
    "define_coordinator",
    "define_executor",
    "define_plan",
    "define_planner",
    "define_reference",
    "define_runtime",
    "define_specialist",
    "define_tenant",
    "define_tool",
    "glimpse",
    "layered_prompt",
    "normalize_schema",
]
