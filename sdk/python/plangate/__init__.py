"""Describe systems of agents as data, run them on a Plangate service, decide their approvals.

Each name is imported from its module when it is first used: a program that only talks to a service does not pay for the
models of specs.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from plangate.api.calls import Api as Api
    from plangate.api.record import Record as Record
    from plangate.approvals import ApprovalSubject as ApprovalSubject
    from plangate.artifacts import ArtifactRecords as ArtifactRecords
    from plangate.artifacts import Artifacts as Artifacts
    from plangate.artifacts import Records as Records
    from plangate.authoring.agents import AgentOptions as AgentOptions
    from plangate.authoring.agents import DefinedAgent as DefinedAgent
    from plangate.authoring.agents import Model as Model
    from plangate.authoring.agents import Prompt as Prompt
    from plangate.authoring.agents import define_coordinator as define_coordinator
    from plangate.authoring.agents import define_executor as define_executor
    from plangate.authoring.agents import define_planner as define_planner
    from plangate.authoring.agents import define_specialist as define_specialist
    from plangate.authoring.arguments import Handler as Handler
    from plangate.authoring.arguments import Policies as Policies
    from plangate.authoring.arguments import Rule as Rule
    from plangate.authoring.dispatchers import ActionDispatcher as ActionDispatcher
    from plangate.authoring.plans import define_plan as define_plan
    from plangate.authoring.predicates import PredicateFunction as PredicateFunction
    from plangate.authoring.references import DefinedReference as DefinedReference
    from plangate.authoring.references import PackedReference as PackedReference
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
    from plangate.errors import WrongCell as WrongCell
    from plangate.files import FileRecords as FileRecords
    from plangate.files import Files as Files
    from plangate.journal import QueryEvents as QueryEvents
    from plangate.runtime import Runtime as Runtime
    from plangate.session import EventHook as EventHook
    from plangate.spec.glimpses import glimpse as glimpse
    from plangate.spec.models import AgentSpec as AgentSpec
    from plangate.spec.models import ApprovalOverrides as ApprovalOverrides
    from plangate.spec.models import ApprovalPolicies as ApprovalPolicies
    from plangate.spec.models import ApprovalRule as ApprovalRule
    from plangate.spec.models import ClientPredicate as ClientPredicate
    from plangate.spec.models import DisplayAlias as DisplayAlias
    from plangate.spec.models import FactSpec as FactSpec
    from plangate.spec.models import FreeArguments as FreeArguments
    from plangate.spec.models import LimitsSpec as LimitsSpec
    from plangate.spec.models import ModelSpec as ModelSpec
    from plangate.spec.models import PlanSpec as PlanSpec
    from plangate.spec.models import ProviderSpec as ProviderSpec
    from plangate.spec.models import Quorum as Quorum
    from plangate.spec.models import ReferenceSpec as ReferenceSpec
    from plangate.spec.models import RuntimeSpec as RuntimeSpec
    from plangate.spec.models import TenantSpec as TenantSpec
    from plangate.spec.models import ToolAnnotations as ToolAnnotations
    from plangate.spec.models import ToolkitConfig as ToolkitConfig
    from plangate.spec.models import ToolkitSpec as ToolkitSpec
    from plangate.spec.models import ToolSpec as ToolSpec
    from plangate.spec.models import WorkspaceSpec as WorkspaceSpec
    from plangate.spec.models.agents import Role as Role
    from plangate.spec.models.runtimes import Interpreter as Interpreter
    from plangate.spec.problems import Problem as Problem
    from plangate.spec.problems import SpecInvalid as SpecInvalid
    from plangate.spec.prompts import LayeredPrompt as LayeredPrompt
    from plangate.spec.prompts import Text as Text
    from plangate.spec.prompts import augment_prompt_tools as augment_prompt_tools
    from plangate.spec.prompts import layered_prompt as layered_prompt
    from plangate.spec.schemas import normalize_schema as normalize_schema
    from plangate.spec.transports import ClientDispatcher as ClientDispatcher
    from plangate.spec.transports import ClientTransport as ClientTransport
    from plangate.spec.transports import Dispatcher as Dispatcher
    from plangate.spec.transports import HttpDispatcher as HttpDispatcher
    from plangate.spec.transports import HttpTransport as HttpTransport
    from plangate.spec.transports import McpDispatcher as McpDispatcher
    from plangate.spec.transports import McpTransport as McpTransport
    from plangate.spec.transports import PythonDispatcher as PythonDispatcher
    from plangate.spec.transports import PythonTransport as PythonTransport
    from plangate.spec.transports import Replay as Replay
    from plangate.spec.transports import SecretRef as SecretRef
    from plangate.spec.transports import ToolDispatcher as ToolDispatcher
    from plangate.spec.transports import Transport as Transport
    from plangate.spec.unions import TaggedUnion as TaggedUnion
    from plangate.spec.vendors import ProviderKind as ProviderKind
    from plangate.statuses import ActionStatus as ActionStatus
    from plangate.statuses import ApprovalStatus as ApprovalStatus
    from plangate.statuses import Decision as Decision
    from plangate.statuses import FactKind as FactKind
    from plangate.statuses import PlanStatus as PlanStatus
    from plangate.statuses import QueryStatus as QueryStatus
    from plangate.statuses import WorkKind as WorkKind
    from plangate.statuses import WorkStatus as WorkStatus
    from plangate.sync import SyncEvents as SyncEvents
    from plangate.sync import SyncRuntime as SyncRuntime
    from plangate.thread_state import Memory as Memory
    from plangate.thread_state import State as State
    from plangate.thread_state import WriteMethod as WriteMethod
    from plangate.workspace.directory import DirectoryWorkspace as DirectoryWorkspace
    from plangate.workspace.directory import WorkspaceError as WorkspaceError
    from plangate.workspace.directory import serve_directory as serve_directory
else:
    _MODULES = {
        "api.calls": "Api",
        "api.record": "Record",
        "approvals": "ApprovalSubject",
        "artifacts": "ArtifactRecords Artifacts Records",
        "authoring.agents": (
            "AgentOptions DefinedAgent Model Prompt define_coordinator define_executor define_planner "
            "define_specialist"
        ),
        "authoring.arguments": "Handler Policies Rule",
        "authoring.dispatchers": "ActionDispatcher",
        "authoring.plans": "define_plan",
        "authoring.predicates": "PredicateFunction",
        "authoring.references": "DefinedReference PackedReference define_reference",
        "authoring.runtimes": "DefinedRuntime define_runtime define_tenant",
        "authoring.tools": "DefinedTool define_tool",
        "context": "CallContext",
        "create": "connect create_runtime",
        "errors": (
            "ApiError Conflict Forbidden Gone InvalidRequest Malformed NotFound PlangateError "
            "ServiceNotInstalled ServiceNotStarted ServiceUnavailable TooLarge TooManyRequests "
            "Unauthenticated WrongCell"
        ),
        "files": "FileRecords Files",
        "journal": "QueryEvents",
        "runtime": "Runtime",
        "session": "EventHook",
        "spec.glimpses": "glimpse",
        "spec.models": (
            "AgentSpec ApprovalOverrides ApprovalPolicies ApprovalRule ClientPredicate DisplayAlias "
            "FactSpec FreeArguments LimitsSpec ModelSpec PlanSpec ProviderSpec Quorum ReferenceSpec RuntimeSpec "
            "TenantSpec ToolAnnotations ToolSpec ToolkitConfig ToolkitSpec WorkspaceSpec"
        ),
        "spec.models.agents": "Role",
        "spec.models.runtimes": "Interpreter",
        "spec.problems": "Problem SpecInvalid",
        "spec.prompts": "LayeredPrompt Text augment_prompt_tools layered_prompt",
        "spec.schemas": "normalize_schema",
        "spec.transports": (
            "ClientDispatcher ClientTransport Dispatcher HttpDispatcher HttpTransport McpDispatcher "
            "McpTransport PythonDispatcher PythonTransport Replay SecretRef ToolDispatcher Transport"
        ),
        "spec.unions": "TaggedUnion",
        "spec.vendors": "ProviderKind",
        "statuses": "ActionStatus ApprovalStatus Decision FactKind PlanStatus QueryStatus WorkKind WorkStatus",
        "sync": "SyncEvents SyncRuntime",
        "thread_state": "Memory State WriteMethod",
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
