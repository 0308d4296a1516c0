"""One model turn: recorded before it is requested, streamed, repeated if the vendor fails, recorded when complete.

A turn that did not complete is never acted on: its text was announced with `step-start` and is taken back with
`step-retry`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import orjson
from plangate.spec.models import AgentSpec

from app.agents.limits import AgentLimits
from app.agents.loop import CallModel, Turn
from app.agents.prompt_window import PromptContext
from app.base.egress_policy import requests_of
from app.base.ids import new_id
from app.base.logs.processors import bind_work_id
from app.calls.models import TurnCall
from app.engine.models import usage_from_work
from app.engine.query_run import QueryRun
from app.engine.work_data import readable_arguments, work_data
from app.events import (
    ContextTrimmedEvent,
    StepRetryEvent,
    StepStartEvent,
    ToolInvocationEvent,
    WorkEndEvent,
)
from app.journal.models import Delta, Entry, Event, Scope, Work, event
from app.llm.codec import dump_turn
from app.llm.messages import ModelRequest, TextDelta, ThinkingDelta, ToolDefinition, ToolUse, TurnDone, Usage
from app.llm.prices import Cost, price, together
from app.llm.provider import BrokenTurn, ContextOverflow, Provider, ProviderFault

MAX_CALLS_A_TURN = 1000

_UNSTORABLE: Final = re.compile("[\\x00\\ud800-\\udfff]")
_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")


class TurnFailed(Exception):
    """The turn failed for good. `entry` closes its record and is not committed yet."""

    def __init__(self, fault: ProviderFault, entry: Entry) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.entry = entry


@dataclass(frozen=True, slots=True)
class ModelCaller:
    """An agent's run that calls the model, and the tools that it may call."""

    agent: AgentSpec
    work_id: str
    parent_id: str
    system: str
    cache_key: str
    tools: tuple[ToolDefinition, ...]
    vendor: str  # the kind of the provider, for its price
    notes: str = ""  # after the system prompt, for this run


async def call_model(
    run: QueryRun,
    provider: Provider,
    caller: ModelCaller,
    step: CallModel,
    opening: Entry,
    context: PromptContext,
    limits: AgentLimits,
) -> tuple[Turn, Entry, PromptContext]:
    """Return the finished turn, the entry that closes its record and opens those of its calls, and the
    context for the next turn. The caller commits the entry, alone or with what follows. `opening` is
    committed before the record of the call.

    What the prompt leaves out is recorded before the prompt is sent: after a crash the turn is requested in
    the same form.
    """
    retry = step.retry_of
    if retry is None:
        context = context.fit(step.messages)
    work = _open_record(caller, step, context)
    scope = run.scope(work.id, caller.work_id, caller.agent.name)
    started = event(scope, StepStartEvent, turn=step.number)
    if retry:
        started = event(scope, StepRetryEvent, turn=step.number, reason="interrupted")
    opening.items += [started, *_trim_events(scope, context)]
    opening.work.append(work)
    await run.commit(opening)
    cuts = 0
    while True:
        context = context.with_trim_announced()
        try:
            async with run.model_slots:
                with bind_work_id(work.id), requests_of(run.lease.tenant):
                    done = await _stream(run, provider, _request(caller, step, context), scope, step.number)
            prompt_bytes = context.record(step.messages).size
            measured = _with_prompt(caller, work, prompt_bytes, done)
            turn, entry = _close_turn(run, caller, measured, scope, done)
            return turn, entry, context.measured(prompt_bytes, done.usage)
        except ProviderFault as fault:
            work = _add_usage(caller, work, fault.usage)
            smaller = context.smaller() if isinstance(fault, ContextOverflow) else None
            if smaller is None and (not fault.retryable or work.attempts - cuts >= limits.max_attempts):
                final = _too_large(fault) if isinstance(fault, ContextOverflow) else fault
                raise TurnFailed(final, _close_failed(work, scope, final)) from fault
            await run.within_spending(Entry(work=[work]))
            work = replace(work, attempts=work.attempts + 1)
            events = [event(scope, StepRetryEvent, turn=step.number, reason=f"{fault.code}: {fault.message}")]
            if smaller is not None:
                context, cuts = smaller, cuts + 1
                work = replace(work, input=_prompt_record(caller, step, context))
                events += _trim_events(scope, context)
            await run.commit(Entry(items=[*events], work=[work]))
            if smaller is None:
                pause_s = _pause_s(limits, fault, work.attempts - cuts)
                await run.within_time_after(pause_s)
                await asyncio.sleep(pause_s)


def _open_record(caller: ModelCaller, step: CallModel, context: PromptContext) -> Work:
    """Return the record of the call, new or continued from failed attempts, with their usage, which counts even if
    the query ends meanwhile."""
    retry = step.retry_of
    work = Work(
        id=retry.work_id if retry else new_id("wrk_"),
        parent_id=caller.work_id,
        kind="model_call",
        name=caller.agent.model.id,
        agent=caller.agent.name,
        status="running",
        position=step.number,
        provider=caller.vendor,
        model=caller.agent.model.id,
        prompt_cache_key=caller.cache_key,
        attempts=retry.attempts + 1 if retry else 1,
        input=_prompt_record(caller, step, context),
        cost_usd=retry.cost_usd if retry else None,
    )
    return _with_usage(work, retry.usage) if retry else work


def _prompt_record(caller: ModelCaller, step: CallModel, context: PromptContext) -> bytes:
    """Return what is recorded about the prompt. The notes of a run are on its first call, for every later
    call."""
    record = context.record(step.messages, step.objection)
    return replace(record, notes=caller.notes if step.number == 1 else "").dump()


def _request(caller: ModelCaller, step: CallModel, context: PromptContext) -> ModelRequest:
    model = caller.agent.model
    return ModelRequest(
        model.id,
        caller.system,
        caller.tools,
        context.prompt(step.messages),
        model.max_output_tokens,
        model.thinking,
        model.extra or {},
        caller.notes,
    )


def _trim_events(scope: Scope, context: PromptContext) -> list[Event]:
    """Return the event that more turns were dropped than before, if so."""
    dropped = context.left_out
    if dropped.turns <= context.announced:
        return []
    return [event(scope, ContextTrimmedEvent, data={"turns": dropped.turns, "tokens": dropped.tokens})]


def _too_large(fault: ProviderFault) -> ProviderFault:
    return ContextOverflow(
        f"{fault.message} No earlier turn is left that could leave the prompt: what this query itself says and "
        "hears is too long. Ask for less in one query, let its tools return less, or use a model with a larger "
        "window.",
        usage=fault.usage,
    )


async def _stream(
    run: QueryRun, provider: Provider, request: ModelRequest, scope: Scope, turn: int
) -> TurnDone:
    names = {tool.name for tool in request.tools}
    is_first = True
    async with contextlib.aclosing(provider.stream(request)) as parts:
        async for part in parts:
            match part:
                case TextDelta(text):
                    await run.post(Delta("text", scope, turn, check_text(text)), is_first=is_first)
                    is_first = False
                case ThinkingDelta(text):
                    await run.post(Delta("reasoning", scope, turn, check_text(text)), is_first=is_first)
                    is_first = False
                case TurnDone():
                    blocks = tuple(
                        storable_call(block, names) if isinstance(block, ToolUse) else block
                        for block in part.blocks
                    )
                    for block in blocks:
                        if not isinstance(block, ToolUse):
                            check_text(block.text, usage=part.usage)
                    if sum(isinstance(b, ToolUse) for b in part.blocks) > MAX_CALLS_A_TURN:
                        raise BrokenTurn(
                            f"The model asked for more than {MAX_CALLS_A_TURN} calls in one turn.",
                            usage=part.usage,
                        )
                    return replace(part, blocks=blocks)
    raise BrokenTurn("The provider's stream ended without the end of the turn.")


def storable_call(use: ToolUse, tools: Collection[str]) -> ToolUse:
    """Return a call that can be stored, and sent back to the vendor, whatever characters it has.

    In its name and id, NUL and lone surrogates are replaced; the name is then that of no tool. In its arguments, lone
    surrogates are written as JSON escapes. The arguments stay as invalid as they are: parsing them tells the model why.
    """
    name = _UNSTORABLE.sub("_", use.name)
    while name != use.name and name in tools:
        name += "_"
    return ToolUse(
        _UNSTORABLE.sub("_", use.id),
        name,
        _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", use.arguments),
    )


def check_text(*texts: str, usage: Usage | None = None) -> str:
    """Return the joined text. Raise BrokenTurn if it holds a lone surrogate, which JSON can spell and
    nothing can store. `usage` is what the attempt used, if known by now."""
    text = "".join(texts)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BrokenTurn("The provider sent half a character (a lone surrogate).", usage=usage) from error
    return text


def _pause_s(limits: AgentLimits, fault: ProviderFault, attempts: int) -> float:
    """Return the pause before the next attempt: exponential with jitter, and never shorter than the vendor requested."""
    backoff: float = min(limits.first_backoff_s * 2 ** (attempts - 2), limits.max_backoff_s)
    jittered = backoff * (0.5 + random.random())  # noqa: S311 - spreads retries, guards nothing
    return max(jittered, min(fault.retry_after_s or 0, limits.max_retry_after_s))


def _with_usage(work: Work, usage: Usage) -> Work:
    return replace(
        work,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


def _add_usage(caller: ModelCaller, work: Work, usage: Usage, model: str | None = None) -> Work:
    """Return the record with the usage and cost of one more attempt. Each attempt is priced alone, because
    a token's price may depend on the length of the prompt.

    `model` is the name that the vendor returned; if it has no price, the requested name is used.
    """
    before = usage_from_work(work)
    used = _with_usage(work, before + usage)
    cost = _cost(caller, usage, model)
    if cost is None:
        return used
    # Earlier attempts had no price: the vendor names its model only with an answer.
    late = _cost(caller, before, model) if work.cost_usd is None and before != Usage() else None
    before_usd = late.usd if late else work.cost_usd
    return replace(used, cost_usd=together((before_usd or 0.0, cost.usd)), price_date=cost.date)


def _with_prompt(caller: ModelCaller, work: Work, prompt_bytes: int, done: TurnDone) -> Work:
    """Return the record with the size of the prompt that was answered, and the count and cost of its tokens. Usage
    estimates from these what bytes kept out of prompts would have cost."""
    used = done.usage
    prompt = replace(used, output_tokens=0, reasoning_tokens=0)
    tokens = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    if not tokens:
        return work
    cost = _cost(caller, prompt, done.model)
    return replace(
        work, prompt_bytes=prompt_bytes, prompt_tokens=tokens, prompt_usd=None if cost is None else cost.usd
    )


def _cost(caller: ModelCaller, usage: Usage, model: str | None) -> Cost | None:
    requested = caller.agent.model.id
    return price(caller.vendor, model or requested, usage) or price(caller.vendor, requested, usage)


def _close_turn(
    run: QueryRun, caller: ModelCaller, work: Work, scope: Scope, done: TurnDone
) -> tuple[Turn, Entry]:
    spent = _add_usage(caller, work, done.usage, done.model)
    work = replace(spent, status="succeeded", output=dump_turn(done.blocks, done.stop_reason))
    entry = Entry(items=[event(scope, WorkEndEvent, data=work_data(work))], work=[work])
    calls: list[TurnCall] = []
    for index, use in enumerate(b for b in done.blocks if isinstance(b, ToolUse)):
        call = Work(
            id=new_id("wrk_"),
            parent_id=caller.work_id,
            kind="tool_call",
            name=use.name,
            agent=caller.agent.name,
            status="running",
            position=work.position * MAX_CALLS_A_TURN + index,
            tool_invocation_id=use.id,
            input=use.arguments.encode(),
        )
        entry.work.append(call)
        events = event(
            run.scope(call.id, caller.work_id, caller.agent.name),
            ToolInvocationEvent,
            tool_invocation_id=use.id,
            tool_name=use.name,
            args=readable_arguments(use.arguments),
            state="call",
        )
        entry.items.append(events)
        calls.append(TurnCall(call.id, use, call.position))
    return Turn(work.position, done.blocks, done.stop_reason, tuple(calls)), entry


def _close_failed(work: Work, scope: Scope, fault: ProviderFault) -> Entry:
    error = orjson.dumps({"code": fault.code, "message": fault.message})
    failed = replace(work, status="failed", error=error)
    return Entry(items=[event(scope, WorkEndEvent, data=work_data(failed))], work=[failed])
