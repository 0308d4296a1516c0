"""The RuntimeSpec and its parts as frozen models: what can be written down about a system of agents.

The models check shapes alone. What the parts ask of one another is checked by `plangate.spec.assembly`,
whose result is the form that is registered. Field names and meanings are those of the RuntimeSpec page.
"""

from plangate.spec.models.agents import PLAN_ROLES, AgentSpec, PlanOrName, Role, TextOrLayers
from plangate.spec.models.declared import (
    DisplayAlias,
    FactSpec,
    PlanSpec,
    ReferenceSpec,
    ToolAnnotations,
    ToolkitConfig,
    ToolkitOrId,
    Toolkits,
    ToolkitSpec,
    ToolSpec,
)
from plangate.spec.models.providers import ModelSpec, ProviderSpec
from plangate.spec.models.rules import (
    ApprovalOverrides,
    ApprovalPolicies,
    ApprovalRule,
    ClientPredicate,
    FreeArguments,
    Predicate,
    Quorum,
    Rule,
)
from plangate.spec.models.runtimes import (
    DEFAULT_SPEC_NAME,
    Interpreter,
    LimitsSpec,
    RuntimeSpec,
    TenantSpec,
    WorkspaceSpec,
    to_wire,
)
from plangate.spec.vendors import ProviderKind
from plangate.statuses import PlanStatus

__all__ = [
    "AgentSpec",
    "ApprovalOverrides",
    "ApprovalPolicies",
    "ApprovalRule",
    "ClientPredicate",
    "DEFAULT_SPEC_NAME",
    "DisplayAlias",
    "FactSpec",
    "FreeArguments",
    "Interpreter",
    "LimitsSpec",
    "ModelSpec",
    "PLAN_ROLES",
    "PlanOrName",
    "PlanSpec",
    "PlanStatus",
    "Predicate",
    "ProviderKind",
    "ProviderSpec",
    "Quorum",
    "ReferenceSpec",
    "Role",
    "Rule",
    "RuntimeSpec",
    "TenantSpec",
    "TextOrLayers",
    "ToolAnnotations",
    "ToolSpec",
    "ToolkitConfig",
    "ToolkitOrId",
    "ToolkitSpec",
    "Toolkits",
    "WorkspaceSpec",
    "to_wire",
]
