"""The names of the GenAI conventions of OpenTelemetry that spans use, and our own beside them. Pure.

As in `opentelemetry-semantic-conventions` 0.66b2 (a test compares), where they are marked as moved to the repository
`semantic-conventions-genai`; they are the same there. They are written down here so that nothing is imported for them.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
WORKFLOW: Final = "gen_ai.workflow.name"
AGENT: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR_TYPE: Final = "error.type"

# Content: only where the operator switched it on.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
CONTENT: Final = frozenset({INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_ARGUMENTS, TOOL_RESULT})

CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_WORKFLOW: Final = "invoke_workflow"

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105

WORK_ID: Final = "plangate.work.id"
WORK_KIND: Final = "plangate.work.kind"
WORK_STATUS: Final = "plangate.work.status"
QUERY_ID: Final = "plangate.query.id"
TENANT: Final = "plangate.tenant"
RUNTIME_ID: Final = "plangate.runtime.id"
ATTEMPTS: Final = "plangate.attempts"
COST_USD: Final = "plangate.cost_usd"
PRICE_DATE: Final = "plangate.price_date"
CACHE_KEY: Final = "plangate.prompt_cache_key"

OTHER: Final = "_OTHER"
