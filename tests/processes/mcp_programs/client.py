"""The client half of the transport `mcp` as a program for the conformance suite: `client.py URL`.

It lists the tools of the server, as a registration does, and calls them, as a query does. With which arguments says the
suite, or `arguments_for` where the scenario leaves that to its description.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, cast

from plangate.spec.transports import McpTransport

from app.base.egress_policy import EgressPolicy
from app.tenancy.secrets import Secrets
from app.tools.models import Attempt, OutgoingCall
from app.tools.transports.mcp.sender import McpSender
from app.tools.transports.mcp.tools import RemoteTool


def arguments_for(name: str, tools: dict[str, RemoteTool]) -> dict[str, Any]:
    if name == "add_numbers":
        return {"a": 5, "b": 3}
    if name == "json_schema_echo":
        return {"schema": tools["json_schema_2020_12_tool"].input_schema}
    return {}


async def main(url: str) -> None:
    sender = McpSender(
        EgressPolicy.from_hosts(["localhost"]), cast(Secrets, None)
    )  # no header takes a secret
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    tools = {tool.name: tool for tool in await sender.tools("acme", url, {}, 10)}
    wanted = [(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
    for name, args in wanted or [(name, arguments_for(name, tools)) for name in tools]:
        transport = McpTransport(url=url, definition_digest=tools[name].digest())
        call = OutgoingCall("wrk_1", "qry_1", "tool", name, "", b"", "never", 20_000, transport, "key-1")
        attempt = Attempt("acme", "default", call, {"args": args, "context": {}}, 1, lambda: True)
        print(name, await sender.send(attempt))
    await sender.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
