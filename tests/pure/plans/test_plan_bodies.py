"""Bodies of plans: normalized, hashed, dispatched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.assembly import assemble
from plangate.spec.models import PlanSpec

from app.base.errors import FieldError
from app.base.schema.checker import SchemaChecker
from app.plans import body as bodies
from app.plans.body import ActionResult
from app.tools.results import Answer
from tests.support import specs

SPEC = PlanSpec.model_validate(specs.ROUTING)
SCHEMAS = SchemaChecker()
HANDLE = {"kind": "Seats", "id": "f" * 64}
ACTIONS = st.one_of(
    st.builds(lambda s: {"kind": "book", "seat": s}, st.text(max_size=5)),
    st.builds(lambda c: {"kind": "refund", "cents": c}, st.integers(1, 10**6)),
    st.builds(lambda n: {**specs.BOOK, "references": [HANDLE] * n}, st.integers(1, 2)),
)


@given(st.lists(ACTIONS, max_size=6))
def test_normalizing_is_idempotent(actions: list[Any]) -> None:
    normal, flaws = bodies.normalize(SPEC, {"reason": "r", "actions": actions}, SCHEMAS)
    assert flaws == []
    assert [a["kind"] for a in normal["actions"]] == [a["kind"] for a in actions]
    assert all(a.keys() == {"kind", "payload", "references"} for a in normal["actions"])
    assert bodies.normalize(SPEC, bodies.flatten_payload(SPEC, normal), SCHEMAS) == (normal, [])


def test_references_are_removed_before_validation_and_context_stays() -> None:
    body = {"reason": "storm", "actions": [{**specs.BOOK, "references": [{**HANDLE, "glimpse": {"n": 1}}]}]}
    normal, _ = bodies.normalize(SPEC, body, SCHEMAS)
    assert normal == {
        "reason": "storm",
        "actions": [{"kind": "book", "payload": {"seat": "12A"}, "references": [HANDLE]}],
    }
    assert bodies.collect_references(bodies.parse_actions(normal)) == [("Seats", "f" * 64)]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ([], ["/actions"]),
        ({}, ["/actions"]),
        ({"actions": {}}, ["/actions"]),
        ({"actions": [{**specs.BOOK, "_outputPath": "x"}]}, ["/actions/0/_outputPath"]),
        ({"actions": [specs.BOOK, {**specs.BOOK, "references": 5}]}, ["/actions/1/references"]),
        (
            {"actions": [{**specs.BOOK, "references": [HANDLE, {"kind": "S"}, {"kind": "S", "id": 5}, 7]}]},
            ["/actions/0/references/1", "/actions/0/references/2", "/actions/0/references/3"],
        ),
        ({"actions": [specs.BOOK, {"kind": "refund", "cents": "5"}]}, ["/actions/1/cents"]),
        ({"actions": [{"kind": "fly", "cents": "5"}]}, ["/actions/0/kind"]),
    ],
)
def test_every_error_has_its_place(body: Any, pointers: list[str]) -> None:
    normal, flaws = bodies.normalize(SPEC, body, SCHEMAS)
    assert normal == {}
    assert [f.pointer for f in flaws] == pointers


def test_errors_about_literals_with_a_dagger_quote_them_as_written() -> None:
    spec = PlanSpec.model_validate({**specs.ROUTING, "variables": True, "schema": {
        "properties": {"actions": {"type": "array", "items": specs.variant("say", to={"enum": ["†a", "b"]})}}}})  # fmt: skip
    said, _ = bodies.normalize(spec, {"actions": [{"kind": "say", "to": "††a"}]}, SCHEMAS, variables=True)
    assert said["actions"][0]["payload"] == {"to": "††a"}
    said, flaws = bodies.normalize(spec, {"actions": [{"kind": "say", "to": "††c"}]}, SCHEMAS, variables=True)
    assert flaws == [FieldError("/actions/0/to", 'must be "††a" or "b", not "††c"')]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t", "u"]),
            st.sampled_from(["pln_1", "pln_2"]),
            st.integers(1, 12),
            st.none() | st.integers(0, 12),
        ),
        unique=True,
        max_size=20,
    )
)
def test_idempotency_keys_are_unique_per_action(names: list[Any]) -> None:
    keys = [bodies.idempotency_key(*name) for name in names]
    assert len(set(keys)) == len(keys)
    assert keys == [bodies.idempotency_key(*name) for name in names]
    assert all(len(k) == 40 for k in keys)


@pytest.mark.parametrize(
    ("output", "wrong"),
    [
        (None, None),
        ({"entitiesAffected": 0}, None),
        ({"entitiesAffected": 2, "summary": "s", "details": [1]}, None),
        ({}, "entitiesAffected"),
        ({"entitiesAffected": 1.0}, "entitiesAffected"),
        ({"entitiesAffected": None}, "entitiesAffected"),
        ({"entitiesAffected": 1, "summary": None}, "summary"),
        ({"entitiesAffected": 1, "sumary": ""}, "'sumary'"),
        ("done", "it returned str"),
        (False, "it returned bool"),
    ],
)
def test_a_dispatcher_returns_nothing_or_a_report(output: Any, wrong: str | None) -> None:
    result, said = bodies.dispatch_result(output)
    if wrong is None:
        assert (result, said) == (output or {}, None)
    else:
        assert result == {}
        assert said is not None
        assert wrong in said
        assert "None or an object" in said


def test_dispatchers_are_chosen_for_batches_or_kinds() -> None:
    one = assemble(specs.planning()).spec
    found, missing = bodies.resolve_dispatchers(one, SPEC, ["book", "refund"])
    assert (found.keys(), missing, bodies.client_call_name(found["*"])) == ({"*"}, [], "actions")
    per_kind = assemble(
        specs.planning(actionDispatcher=None, actionDispatchers={"book": "client", "refund": "client"})
    ).spec
    found, missing = bodies.resolve_dispatchers(per_kind, SPEC, ["refund", "book", "fly"])
    assert (list(found), missing) == (["book", "refund"], ["fly"])
    assert bodies.client_call_name(found["book"]) == "actions.book"
    assert found["book"].digest == found["refund"].digest, "of what a dispatcher is, not of its kind"


def test_actions_of_a_plan_are_limited() -> None:
    body = {"actions": [dict(specs.BOOK)] * 1_001}
    form, flaws = bodies.normalize(SPEC, body, SCHEMAS)
    assert form == {}
    assert [(f.pointer, f.message) for f in flaws] == [
        ("/actions", "a plan has 1000 actions at most; this has 1001: make several")
    ]


def test_a_large_result_is_stored_with_the_call_alone() -> None:
    done = Answer({"entitiesAffected": 3, "details": "x" * 100_000})
    result = ActionResult.from_call(done)
    kept = json.loads(result.dump()[0])
    assert (result.status, kept["entitiesAffected"]) == ("succeeded", 3)
    assert result.tool_result() == Answer("x" * 100_000)  # what goes to an output path is whole
    assert kept["details"]["note"].startswith("The result had 1000")
    small = Answer({"entitiesAffected": 3, "details": "x"})
    assert json.loads(ActionResult.from_call(small).dump()[0]) == small.value


def test_each_row_keeps_the_summary_of_a_large_result() -> None:
    large = {
        "entitiesAffected": 3,
        "summary": "Three were told. " * 200,
        "details": "x" * bodies.MAX_ACTION_RESULT_BYTES,
    }
    kept = json.loads(ActionResult.from_call(Answer(large)).dump()[0])
    assert (kept["entitiesAffected"], len(kept["summary"]), kept["summary"][:16]) == (
        3,
        2000,
        "Three were told.",
    )
    assert "the record of the call has it" in kept["details"]["note"]
    silent = {key: held for key, held in large.items() if key != "summary"}
    assert "summary" not in json.loads(ActionResult.from_call(Answer(silent)).dump()[0])


def test_details_of_many_actions_are_bounded_together() -> None:
    """A batch of a thousand is written at once."""
    result = ActionResult.from_call(Answer({"entitiesAffected": 3, "details": "x" * 60_000}))
    assert json.loads(result.dump(200)[0])["details"] == "x" * 60_000
    kept = result.dump(1_000)[0]
    assert len(kept) * 1_000 <= bodies.MAX_BATCH_RESULT_BYTES
    assert json.loads(kept)["entitiesAffected"] == 3
