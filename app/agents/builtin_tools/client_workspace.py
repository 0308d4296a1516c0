"""The toolkit `workspace` of a runtime whose files are on a machine of the user: each call of a tool is a client
call."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import orjson
from plangate.spec.file_toolkits import WORKSPACE_CALL
from plangate.spec.models import WorkspaceSpec
from plangate.spec.transports import ClientTransport
from plangate.workspace.serving import PUBLISH

from app.agents.builtin_tools.file_sources import FileSources
from app.agents.builtin_tools.workspace import as_builtin_tool
from app.base.errors import truncate
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.calls.dispatch import CallDispatcher
from app.calls.toolkit import BuiltinTool, ToolCall
from app.tools.models import DEFAULT_TIMEOUT_MS, MAX_ERROR_CHARS, OutgoingCall, tool_request
from app.tools.results import Answer, ToolError, ToolResult, explain_error
from app.workspace import paths
from app.workspace.models import FileAuthor
from app.workspace.service import Workspaces

MAX_SENT_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a file that one call carries to the user's machine, as base64 in its request."""

MAX_CODE_CHARS: Final = 100
"""Maximum length of the error code that a process returns for its workspace."""

Replay = Literal["safe", "never"]
_PATHS: Final[Mapping[str, Callable[[str], str]]] = {
    "read": paths.normalize,
    "edit": paths.normalize,
    "ls": paths.folder_prefix,
    "grep": paths.folder_prefix,
}


class ClientWorkspace:
    """Sends calls of the tools to the process that serves the workspace of a runtime."""

    def __init__(self, dispatch: CallDispatcher, workspaces: Workspaces, sources: FileSources) -> None:
        self._dispatch = dispatch
        self._workspaces = workspaces
        self._sources = sources

    def verbs(self, own: Mapping[str, BuiltinTool]) -> dict[str, BuiltinTool]:
        """Return tools that go to the user's machine if the runtime says so, and else to `own`."""
        return {name: _choice(as_builtin_tool(self._verb(name)), verb) for name, verb in own.items()}

    def _verb(self, name: str) -> BuiltinTool:
        if name == "write":
            return self._write

        async def verb(call: ToolCall) -> ToolResult:
            check = _PATHS.get(name)
            if check is not None and "path" in call.args:
                check(call.args["path"])
            return await self._send(call, name, call.args, "never" if name == "edit" else "safe")

        return verb

    async def _write(self, call: ToolCall) -> ToolResult:
        path = paths.normalize(call.args["path"])
        source = await self._sources.read(call)
        if isinstance(source, ToolError):
            return source
        size = len(source.data) if source.body is None else source.body.size
        if size > MAX_SENT_BYTES:
            return ToolError(
                f"The file would have {size} bytes, and a call carries at most {MAX_SENT_BYTES} to the user's machine; "
                f"nothing was written. {_other_way(call)}",
                "file_too_large",
            )
        data = source.data
        if source.body is not None:
            data = await self._workspaces.read_body(call.run.lease.tenant, source.body)
            await call.run.in_fenced_transaction(lambda tx: self._sources.note(tx, call, source))
        text = await offload(lambda: base64.b64encode(data).decode(), size=size)
        return await self._send(call, "write", {"path": path, "base64": text}, "safe")

    async def copy(self, call: ToolCall, path: str) -> ToolError | None:
        """Copy what is at a path into the service, so that it can be published. Return the error for the model, if any.
        Raise PathNotAllowed."""
        root = paths.normalize(path)
        copied = await self._send(call, PUBLISH, {"path": root}, "safe")
        if isinstance(copied, ToolError):
            return copied
        if not _is_path_list(copied.value):
            return _malformed_answer(PUBLISH, copied.value)
        published = set(copied.value)

        async def remove_rest(tx: Tx) -> None:
            """Remove copies of files that are no longer there."""
            thread_id, after = call.run.query.thread_id, ""
            author = FileAuthor(call.agent.name, None, call.run.query.id)
            while rows := await self._workspaces.list_files(tx, thread_id, f"{root}/", after, 1000):
                for row in rows:
                    if row.path not in published:
                        await self._workspaces.delete(tx, thread_id, row.path, author)
                after = rows[-1].path

        await call.run.in_fenced_transaction(remove_rest)
        return None

    async def _send(self, call: ToolCall, tool: str, args: Mapping[str, Any], replay: Replay) -> ToolResult:
        run = call.run
        spec = run.runtime.spec.workspace
        if spec is None:
            raise TypeError(f"the runtime {run.runtime.id} has no workspace of a client")
        outgoing = OutgoingCall(
            work_id=call.scope.work_id,
            query_id=run.query.id,
            purpose="tool",
            name=WORKSPACE_CALL,
            definition_digest=workspace_digest(run.runtime.name, spec),
            request=await offload(
                tool_request, run.call_context(call.scope, call.use_id), {"tool": tool, "args": dict(args)}
            ),
            replay=replay,
            timeout_ms=DEFAULT_TIMEOUT_MS,
            transport=ClientTransport(claim_within_ms=spec.claim_within_ms),
            idempotency_key=call.scope.work_id,
        )
        result = await self._dispatch.outcome(run, outgoing)
        if isinstance(result, ToolError):
            not_served = f"No process served the workspace in time, so {tool} was not carried out."
            return explain_error(result, tool, not_served)
        return _parse_answer(tool, result.value)


def _other_way(call: ToolCall) -> str:
    """Return what can be done about a file that is too large for a call."""
    if "artifact" in call.args:
        return (
            f"Tell the user to save it there from GET /artifacts/{call.args['artifact']}/content, or publish and write its "
            "parts."
        )
    if "reference" in call.args:
        handle = call.args["reference"]
        return f"Tell the user to save it there from GET /references/{handle['kind']}/{handle['id']}."
    return "Write several smaller files."


def workspace_digest(runtime: str, spec: WorkspaceSpec) -> str:
    """Return the digest under which a client process serves a workspace. It covers the runtime's name and the field
    of the spec."""
    part = {"runtime": runtime, "workspace": spec.to_wire()}
    return hashlib.sha256(strict_json.canonical(part)).hexdigest()


def _parse_answer(tool: str, output: Any) -> ToolResult:
    """Return the result that a process returned for its workspace: `{"result"}`, or `{"error": {"code", "message"}}`."""
    if isinstance(output, dict) and "result" in output:
        return Answer(output["result"])
    error = output.get("error") if isinstance(output, dict) else None
    if (
        isinstance(error, dict)
        and isinstance(error.get("code"), str)
        and isinstance(error.get("message"), str)
    ):
        return ToolError(truncate(error["message"], MAX_ERROR_CHARS), truncate(error["code"], MAX_CODE_CHARS))
    return _malformed_answer(tool, output)


def _malformed_answer(tool: str, output: Any) -> ToolError:
    text = orjson.dumps(output)[:200].decode("utf-8", "replace")
    return ToolError(f"The process that serves the workspace answered {tool} with {text}.", "bad_result")


def _is_path_list(value: Any) -> bool:
    """Return whether this is a list of at least one path: a process that publishes nothing answers with an error."""
    return isinstance(value, list) and bool(value) and all(isinstance(path, str) for path in value)


def _choice(client: BuiltinTool, own: BuiltinTool) -> BuiltinTool:
    async def chosen(call: ToolCall) -> ToolResult:
        verb: Callable[[ToolCall], Awaitable[ToolResult]] = (
            own if call.run.runtime.spec.workspace is None else client
        )
        return await verb(call)

    return chosen
