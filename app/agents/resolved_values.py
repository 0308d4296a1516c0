"""Values that models have read with `resolveRef`. Records and events contain the handle, the glimpse and the size; a
restarted run reads the value again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from plangate.spec.gate_checks import QUERY_RESULT

from app.agents.loop import Transcript
from app.agents.transcript import SHOWN_BYTES_FIELD, read_resolved, unavailable_text
from app.base.errors import Gone, NotFound, PlangateError, Unavailable
from app.base.json import strict_json
from app.calls.models import TurnCall
from app.catalog.results import omit_sensitive_columns
from app.engine.query_run import QueryRun
from app.references.models import Reference
from app.references.service import ReferenceService
from app.references.values import ValuePart
from app.tools.results import Answer

NO_LONGER: Final = "The value is no longer available."


async def resolve_part(
    run: QueryRun, references: ReferenceService, kind: str, id: str, path: str | None, limit: int
) -> tuple[Reference, ValuePart]:
    """Return a reference and its value, or a part of the value, without sensitive columns. Raise PlangateError."""
    reference, data = await run.read(lambda tx: references.for_model(tx, kind, id, path, limit))
    prune = omit_sensitive_columns if kind == QUERY_RESULT else None
    return reference, await references.part_for_model(reference, data, path, limit, prune)


def resolved_answer(reference: Reference, path: str | None, part: ValuePart, *, to_path: bool) -> Answer:
    """Return the answer of `resolveRef`, with its record. A note in place of the value is its own record. With
    `to_path`, the part has no note."""
    handle = {**reference.handle(), **({"path": path} if path is not None else {})}
    if part.note is not None:
        return Answer({**handle, "note": part.note})
    record = {**handle, SHOWN_BYTES_FIELD: part.shown_bytes}
    if to_path:
        return Answer(part.content, record=record)
    return Answer({"value": part.content, "glimpse": reference.glimpse}, record=record)


async def restore_values(run: QueryRun, references: ReferenceService, transcript: Transcript) -> Transcript:
    """Return the transcript of a restarted run with the values that its model had read, as far as they still exist."""
    if not any(call.on_record for turn in transcript.turns for call in turn.calls):
        return transcript
    turns = []
    for turn in transcript.turns:
        calls = [await _restored(run, references, call) if call.on_record else call for call in turn.calls]
        turns.append(replace(turn, calls=tuple(calls)))
    return replace(transcript, turns=tuple(turns))


async def _restored(run: QueryRun, references: ReferenceService, call: TurnCall) -> TurnCall:
    record = read_resolved(call.on_record or "")
    if record is None:
        return call
    handle = record.handle
    try:
        reference, part = await resolve_part(
            run, references, handle["kind"], handle["id"], handle.get("path"), run.tool_result_max_bytes
        )
    except Unavailable:
        raise  # the database is gone, and so is the run
    except (Gone, NotFound):
        return replace(call, answer=unavailable_text(record, NO_LONGER))
    except PlangateError as error:
        return replace(
            call, answer=unavailable_text(record, f"The value is not available now: {error.detail}")
        )
    answer = resolved_answer(reference, handle.get("path"), part, to_path=False)
    return replace(call, answer=record.note + strict_json.dumps(answer.value).decode())
