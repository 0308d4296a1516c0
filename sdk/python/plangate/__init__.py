"""Describe systems of agents as data, run them on a Plangate service, decide their approvals."""

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
