"""Lifecycles: allowed transitions, rejections, and drawings."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import pytest

from app.base.errors import Conflict
from app.base.lifecycle import Lifecycle

Lamp = Literal["off", "on", "burnt-out"]

LAMP = Lifecycle[Lamp]("lamp", {"off": ("on",), "on": ("off", "burnt-out"), "burnt-out": ()})


@pytest.mark.parametrize("current", get_args(Lamp))
@pytest.mark.parametrize("to", get_args(Lamp))
def test_exactly_the_table_is_allowed(current: Lamp, to: Lamp) -> None:
    allowed = (current, to) in {("off", "on"), ("on", "off"), ("on", "burnt-out")}
    assert LAMP.allows(current, to) == allowed
    if allowed:
        LAMP.check(current, to)
    else:
        with pytest.raises(Conflict):
            LAMP.check(current, to)


def test_a_rejected_transition_names_states_and_alternatives() -> None:
    with pytest.raises(Conflict) as caught:
        LAMP.check("on", "on")
    assert caught.value.detail == "The lamp is on and cannot become on; it can become off or burnt-out."
    assert caught.value.extra == {"state": "on", "allowed": ["off", "burnt-out"]}
    with pytest.raises(
        Conflict, match="The lamp is burnt-out and cannot become on; it is over and stays as it is"
    ):
        LAMP.check("burnt-out", "on")


def test_ends() -> None:
    assert LAMP.initial == "off"
    assert LAMP.terminal == {"burnt-out"}


def test_the_diagram() -> None:
    assert LAMP.mermaid() == (
        "stateDiagram-v2\n"
        '    state "burnt-out" as burnt_out\n'
        "    [*] --> off\n"
        "    off --> on\n"
        "    on --> off\n"
        "    on --> burnt_out\n"
        "    burnt_out --> [*]"
    )


def test_a_table_must_have_a_row_for_each_state() -> None:
    with pytest.raises(ValueError, match="no row for burnt-out"):
        Lifecycle[Lamp]("lamp", {"off": ("on",), "on": ("off", "burnt-out")})
    with pytest.raises(ValueError, match="no row for gone"):
        Lifecycle[str]("thing", {"here": ("gone",)})
    with pytest.raises(ValueError, match="no states"):
        Lifecycle[str]("thing", {})


def test_a_lifecycle_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LAMP.name = "torch"  # type: ignore[misc]
    with pytest.raises(TypeError):
        LAMP.transitions["off"] = ()  # type: ignore[index]
