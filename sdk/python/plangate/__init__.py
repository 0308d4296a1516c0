"""Describe systems of agents as data, run them on a Plangate service, decide their approvals.

Each name is imported from its module when it is first used: a program that only talks to a service does not pay for the
models of specs.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from plangate.approvals import ApprovalSubject as ApprovalSubject
    from plangate.artifacts import Artifacts as Artifacts
    from plangate.authoring.agents import AgentOptions as AgentOptions
    from plangate.authoring.agents import DefinedAgent as DefinedAgent
    from plangate.authoring.agents import define_coordinator as define_coordinator
    from plangate.authoring.agents import define_executor as define_executor
    from plangate.authoring.agents import define_planner as define_planner
    from plangate.authoring.agents import define_specialist as define_specialist
    from plangate.authoring.dispatchers import ActionDispatcher as ActionDispatcher
    from plangate.authoring.plans import define_plan as define_plan
    from plangate.authoring.references import DefinedReference as DefinedReference
    from plangate.authoring.references import define_reference as define_reference
    from plangate.authoring.runtimes import DefinedRuntime as DefinedRuntime
    from plangate.authoring.runtimes import define_runtime as define_runtime
    from plangate.authoring.runtimes import define_tenant as define_tenant
    from plangate.authoring.tools import DefinedTool as DefinedTool
    from plangate.authoring.tools import define_tool as define_tool
    from plangate.context import CallContext as CallContext
    from plangate.create import connect as connect
    from plangate.create import create_runtime as create_runtime
    from plangate.errors import ApiError as ApiError
    from plangate.errors import Conflict as Conflict
    from plangate.errors import Forbidden as Forbidden
    from plangate.errors import Gone as Gone
    from plangate.errors import InvalidRequest as InvalidRequest
    from plangate.errors import Malformed as Malformed
    from plangate.errors import NotFound as NotFound
    from plangate.errors import PlangateError as PlangateError
    from plangate.errors import ServiceNotInstalled as ServiceNotInstalled
    from plangate.errors import ServiceNotStarted as ServiceNotStarted
    from plangate.errors import ServiceUnavailable as ServiceUnavailable
    from plangate.errors import TooLarge as TooLarge
    from plangate.errors import TooManyRequests as TooManyRequests
    from plangate.errors import Unauthenticated as Unauthenticated
    from plangate.files import Files as Files
    from plangate.journal import QueryEvents as QueryEvents
    from plangate.runtime import Runtime as Runtime
    from plangate.spec.glimpses import glimpse as glimpse
    from plangate.spec.models import AgentSpec as AgentSpec
    from plangate.spec.models import ApprovalOverrides as ApprovalOverrides
    from plangate.spec.models import ApprovalPolicies as ApprovalPolicies
    from plangate.spec.models import ApprovalRule as ApprovalRule
    from plangate.spec.models import DisplayAlias as DisplayAlias
    from plangate.spec.models import LimitsSpec as LimitsSpec
    from plangate.spec.models import ModelSpec as ModelSpec
    from plangate.spec.models import PlanSpec as PlanSpec
    from plangate.spec.models import ProviderSpec as ProviderSpec
    from plangate.spec.models import ReferenceSpec as ReferenceSpec
    from plangate.spec.models import RuntimeSpec as RuntimeSpec
    from plangate.spec.models import TenantSpec as TenantSpec
    from plangate.spec.models import ToolAnnotations as ToolAnnotations
    from plangate.spec.models import ToolkitConfig as ToolkitConfig
    from plangate.spec.models import ToolkitSpec as ToolkitSpec
    from plangate.spec.models import ToolSpec as ToolSpec
    from plangate.spec.models import WorkspaceSpec as WorkspaceSpec
    from plangate.spec.problems import Problem as Problem
    from plangate.spec.problems import SpecInvalid as SpecInvalid
    from plangate.spec.prompts import LayeredPrompt as LayeredPrompt
    from plangate.spec.prompts import augment_prompt_tools as augment_prompt_tools
    from plangate.spec.prompts import layered_prompt as layered_prompt
    from plangate.spec.schemas import normalize_schema as normalize_schema
    from plangate.spec.unions import TaggedUnion as TaggedUnion
    from plangate.sync import SyncEvents as SyncEvents
    from plangate.sync import SyncRuntime as SyncRuntime
    from plangate.thread_state import Memory as Memory
    from plangate.thread_state import State as State
    from plangate.workspace.directory import DirectoryWorkspace as DirectoryWorkspace
    from plangate.workspace.directory import WorkspaceError as WorkspaceError
    from plangate.workspace.directory import serve_directory as serve_directory
else:
    _MODULES = {
        "approvals": "ApprovalSubject",
        "artifacts": "Artifacts",
        "authoring.agents": (
            "AgentOptions DefinedAgent define_coordinator define_executor define_planner define_specialist"
        ),
        "authoring.dispatchers": "ActionDispatcher",
        "authoring.plans": "define_plan",
        "authoring.references": "DefinedReference define_reference",
        "authoring.runtimes": "DefinedRuntime define_runtime define_tenant",
        "authoring.tools": "DefinedTool define_tool",
        "context": "CallContext",
        "create": "connect create_runtime",
        "errors": (
            "ApiError Conflict Forbidden Gone InvalidRequest Malformed NotFound PlangateError "
            "ServiceNotInstalled ServiceNotStarted ServiceUnavailable TooLarge TooManyRequests "
            "Unauthenticated"
        ),
        "files": "Files",
        "journal": "QueryEvents",
        "runtime": "Runtime",
        "spec.glimpses": "glimpse",
        "spec.models": (
            "AgentSpec ApprovalOverrides ApprovalPolicies ApprovalRule DisplayAlias LimitsSpec ModelSpec "
            "PlanSpec ProviderSpec ReferenceSpec RuntimeSpec TenantSpec ToolAnnotations ToolkitConfig "
            "ToolkitSpec ToolSpec WorkspaceSpec"
        ),
        "spec.problems": "Problem SpecInvalid",
        "spec.prompts": "LayeredPrompt augment_prompt_tools layered_prompt",
        "spec.schemas": "normalize_schema",
        "spec.unions": "TaggedUnion",
        "sync": "SyncEvents SyncRuntime",
        "thread_state": "Memory State",
        "workspace.directory": "DirectoryWorkspace WorkspaceError serve_directory",
    }
    _HOMES = {name: f"plangate.{module}" for module, names in _MODULES.items() for name in names.split()}
    __all__ = sorted(_HOMES)

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
