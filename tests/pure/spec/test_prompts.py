"""Layered prompts: exact bytes, errors, and merging of the tool table."""

from __future__ import annotations

import hashlib
import time
from dataclasses import FrozenInstanceError
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from plangate.spec.models import ToolSpec
from plangate.spec.prompts import LayeredPrompt, augment_prompt_tools, layered_prompt, render_layers
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_snake

HEADER = "| Tool | Description | Approval |\n| --- | --- | --- |\n"


class Rates(BaseModel):
    vat_rate: Decimal = Field(alias="vatRate")
    since: date


def test_every_layer_in_order_byte_for_byte() -> None:
    prompt = layered_prompt(
        examples=[{"in": "a"}],
        output_format="  One line.\n",
        safety=["Never guess.", " Ask first. "],
        domain_knowledge={"rates": Rates(vatRate=Decimal("0.190"), since=date(2026, 1, 2)), "a": "ä"},
        tools=["zeta", {"name": "alpha", "description": "Reads.", "approval": "never"}],
        operational_rules=("Check the order.",),
        communication="Be brief.",
        identity="\nYou refund orders.\n",
    )
    assert prompt.text == (
        "# Identity\nYou refund orders.\n\n"
        "# Communication\nBe brief.\n\n"
        "# Operational Rules\n- Check the order.\n\n"
        "# Tools\n" + HEADER + "| alpha | Reads. | never |\n| zeta |  |  |\n\n"
        '# Domain Knowledge\n```json\n{\n  "a": "ä",\n  "rates": {\n    "since": "2026-01-02",\n'
        '    "vatRate": "0.190"\n  }\n}\n```\n\n'
        "# Safety\n- Never guess.\n- Ask first.\n\n"
        "# Output Format\nOne line.\n\n"
        '# Examples\n```json\n[\n  {\n    "in": "a"\n  }\n]\n```'
    )
    assert prompt.cache_key == hashlib.sha256(prompt.text.encode()).hexdigest()
    assert str(prompt) == prompt.text


def test_the_layers_are_named() -> None:
    with pytest.raises(TypeError, match="takes 0 positional arguments but 1 was given"):
        layered_prompt("You help.")  # type: ignore[misc]


def test_tools_may_be_any_iterable_and_a_structured_section_a_model() -> None:
    prompt = layered_prompt(
        identity="I",
        tools=(name for name in ("b", "a")),
        examples=Rates(vatRate=Decimal("1.10"), since=date(2026, 1, 2)),
    )
    assert prompt.text == (
        "# Identity\nI\n\n# Tools\n" + HEADER + "| a |  |  |\n| b |  |  |\n\n"
        '# Examples\n```json\n{\n  "since": "2026-01-02",\n  "vatRate": "1.10"\n}\n```'
    )


def test_identity_alone() -> None:
    prompt = layered_prompt(identity="You help.")
    assert prompt.text == "# Identity\nYou help."
    assert prompt == LayeredPrompt("# Identity\nYou help.")


def test_a_layered_prompt_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        LayeredPrompt("a").text = "b"  # type: ignore[misc]


def test_text_that_is_not_utf8_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot be written as UTF-8"):
        LayeredPrompt("\ud800")


@pytest.mark.parametrize("empty", [None, "", "  \n", [], (), ["", " "]])
def test_empty_sections_are_left_out(empty: Any) -> None:
    assert layered_prompt(identity="I", safety=empty).text == "# Identity\nI"


@pytest.mark.parametrize("empty", [None, "", {}, [], ()])
def test_empty_structured_sections_are_left_out(empty: Any) -> None:
    assert layered_prompt(identity="I", examples=empty, tools=[]).text == "# Identity\nI"


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        (Decimal("1E+2"), '"1E+2"'),
        (datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),
        ({"b": None, "a": (1, 2)}, '{\n  "a": [\n    1,\n    2\n  ],\n  "b": null\n}'),
    ],
)
def test_structured_values(value: Any, body: str) -> None:
    text = layered_prompt(identity="I", output_format=value).text
    assert text == f"# Identity\nI\n\n# Output Format\n```json\n{body}\n```"


def test_identity_is_required() -> None:
    with pytest.raises(TypeError, match=r"'Identity' \(identity\) is required"):
        layered_prompt(identity=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'identity' is required"):
        render_layers({"safety": "x"})
    for empty in ("", " \n", [], ["", " "]):
        with pytest.raises(ValueError, match=r"'Identity' \(identity\) is empty: say who the agent is"):
            layered_prompt(identity=empty, safety="x")


@pytest.mark.parametrize(
    ("layer", "value", "message"),
    [
        ("identity", {"a": 1}, r"'Identity' \(identity\) takes text or a list of texts, not a dict"),
        ("safety", 5, r"'Safety' \(safety\) takes text or a list of texts, not a int"),
        ("communication", b"x", r"'Communication' .* not a bytes"),
        ("operational_rules", ["a", 0], r"'Operational Rules' .* one of its items is a int"),
        ("operational_rules", ["a", None], r"'Operational Rules' .* one of its items is None"),
        ("communication", {"a"}, r"'Communication' .* not a set"),
        ("domain_knowledge", {"a": float("nan")}, r"'Domain Knowledge' \(domain_knowledge\) holds nan"),
        (
            "output_format",
            {1: "a"},
            r"'Output Format' \(output_format\) holds the key 1; keys must be strings",
        ),
        ("examples", [object()], r"'Examples' \(examples\) holds a value that is not JSON: a object"),
        ("examples", {"a", "b"}, r"'Examples' .* not JSON: a set"),
        ("tools", "search", r"'Tools' \(tools\) takes a list of tools, not a str"),
        ("tools", {"name": "x"}, r"'Tools' \(tools\) takes a list of tools, not a dict"),
        ("tools", [3], r"takes tools, mappings with a name, or names, not a int"),
        ("tools", [{"description": "x"}], r"takes tools, mappings with a name, or names, not a dict"),
        ("tools", [" "], r"'Tools' .* lists a tool with an empty name"),
        ("tools", [{"name": "t", "description": 3}], r"the description of 't' is a int, not text"),
        ("tools", [{"name": "t", "approval": 3}], r"the approval of 't' is neither text nor a rule"),
        (
            "tools",
            [{"name": "t", "approval": {"kind": 3}}],
            r"the approval of 't' is neither text nor a rule",
        ),
        ("tools", [{"name": "t", "approval": {}}], r"the approval of 't' is neither text nor a rule"),
    ],
)
def test_refusals_name_the_section(layer: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        layered_prompt(**{"identity": "I", layer: value})


def test_a_recursive_value_is_rejected_in_a_layer() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(TypeError, match=r"'Examples' .* contains itself"):
        layered_prompt(identity="I", examples=knot)


def test_tool_rows() -> None:
    spec = ToolSpec(name="pay", description="Pays.", input_schema={}, approval={"kind": "always"})
    text = layered_prompt(
        identity="I",
        tools=[
            spec,
            ToolSpec(name="look", input_schema={}),
            {"name": "pay", "description": "A second pay."},
            {"name": "a|b", "description": "one\ntwo\r\nthree | four", "approval": {"kind": "dynamic"}},
            {"name": "plain", "approval": "default"},
        ],
    ).text
    assert text == (
        "# Identity\nI\n\n# Tools\n" + HEADER + "| a\\|b | one two three \\| four | dynamic |\n"
        "| look |  |  |\n| pay | Pays. | always |\n| plain |  |  |"
    )


# Layers as HTTP carries them.


def test_render_layers_in_camel_case() -> None:
    layers = {"operationalRules": ["a"], "domainKnowledge": {"k": 1}, "outputFormat": "o", "identity": "I"}
    expected = layered_prompt(
        identity="I", operational_rules=["a"], domain_knowledge={"k": 1}, output_format="o"
    )
    assert render_layers(layers) == expected
    assert render_layers({"identity": "I", "operational_rules": ["a"], "safety": None}) == layered_prompt(
        identity="I", operational_rules=["a"]
    )


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            {"identity": "I", "mood": "x"},
            "unknown prompt layer 'mood'; the layers are identity, communication, ",
        ),
        ({"identity": "I", "outputFormat": "a", "output_format": "b"}, "'outputFormat' is given twice"),
        ([], "prompt layers are an object, not list"),
    ],
)
def test_invalid_layers_are_rejected(layers: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        render_layers(layers)


# The tool table of an agent.


def test_merge_into_a_layered_prompt() -> None:
    prompt = layered_prompt(
        identity="I", operational_rules=["Do."], tools=[{"name": "m", "description": "Mine."}], safety="S"
    )
    merged = augment_prompt_tools(prompt, [{"name": "m", "description": "Theirs."}, "z", "a", "z"])
    assert merged.text == (
        "# Identity\nI\n\n# Operational Rules\n- Do.\n\n# Tools\n"
        + HEADER
        + "| a |  |  |\n| m | Mine. |  |\n| z |  |  |\n\n# Safety\nS"
    )


@pytest.mark.parametrize("later", [{"safety": "S"}, {"domain_knowledge": {"a": 1}}, {}])
def test_the_section_comes_after_the_first_three(later: dict[str, Any]) -> None:
    without = layered_prompt(identity="I", communication="C", **later)
    expected = layered_prompt(identity="I", communication="C", tools=["t"], **later)
    assert augment_prompt_tools(without, ["t"]) == expected


@pytest.mark.parametrize("tail", ["", "\n", "\n\n  "])
def test_a_plain_prompt_gets_the_section_at_its_end(tail: str) -> None:
    merged = augment_prompt_tools(f"Be brief.\n\n# Safety\nNever.{tail}", ["t"])
    assert merged.text == f"Be brief.\n\n# Safety\nNever.\n\n# Tools\n{HEADER}| t |  |  |"


def test_without_tools_a_prompt_is_unchanged() -> None:
    assert augment_prompt_tools(" as it is \n", []).text == " as it is \n"


def test_a_section_in_prose_keeps_its_prose() -> None:
    merged = augment_prompt_tools(
        "# Tools\nUse them well.\n\n# Rules\n| Tool | Description | Approval |", ["t"]
    )
    assert merged.text == (
        f"# Tools\nUse them well.\n\n{HEADER}| t |  |  |\n\n# Rules\n| Tool | Description | Approval |"
    )


def test_a_table_written_by_hand_is_kept() -> None:
    text = "# Tools\nFirst:\n|Tool|Description|Approval|\n|:--|---|--:|\n| b | by \\| hand\n| a |\nThen more."
    merged = augment_prompt_tools(text, [{"name": "b", "description": "other"}, "c"])
    assert merged.text == (
        f"# Tools\nFirst:\n{HEADER}| a |  |  |\n| b | by \\| hand |  |\n| c |  |  |\nThen more."
    )


def test_a_heading_in_a_code_block_is_not_a_section() -> None:
    text = "Look:\n```\n# Tools\n```"
    merged = augment_prompt_tools(text, ["t"])
    assert merged.text == f"{text}\n\n# Tools\n{HEADER}| t |  |  |"
    assert augment_prompt_tools(merged, ["t"]) == merged


def test_an_unclosed_code_block_hides_nothing() -> None:
    merged = augment_prompt_tools(f"```\n# Tools\n{HEADER}| a |  |  |", ["b"])
    assert merged.text == f"```\n# Tools\n{HEADER}| a |  |  |\n| b |  |  |"


def test_many_open_code_blocks_are_read_in_linear_time() -> None:
    openings = "".join(f"{'`' * length}x\n" for length in range(300, 3, -1))
    start = time.perf_counter()
    merged = augment_prompt_tools(openings + "```\n" * 100_000, ["t"])
    assert time.perf_counter() - start < 3
    assert merged.text.endswith("| t |  |  |")


# Properties.

plain_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = words | st.lists(words, max_size=3)
identities = texts.filter(lambda text: "".join(text).strip())
tool = st.fixed_dictionaries({"name": words.filter(lambda name: bool(name.strip())), "description": words})
STRUCTURED = ("domainKnowledge", "outputFormat", "examples")
LAYERS = ("identity", "communication", "operationalRules", "tools", "safety", *STRUCTURED)
layers_strategy = st.fixed_dictionaries(
    {"identity": identities},
    optional={
        "communication": texts,
        "operationalRules": texts,
        "tools": st.lists(tool, max_size=3),
        "domainKnowledge": plain_json,
        "safety": texts,
        "outputFormat": plain_json,
        "examples": plain_json,
    },
)


def shuffled(value: Any, order: Any) -> Any:
    """The same value with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = order.draw(st.permutations(list(value)))
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(held, order) for held in value] if isinstance(value, list) else value


@given(layers_strategy, st.data())
def test_the_order_of_keys_never_matters(layers: dict[str, Any], order: st.DataObject) -> None:
    prompt = render_layers(layers)
    again = render_layers(shuffled(layers, order))
    assert (again.text, again.cache_key) == (prompt.text, prompt.cache_key)


values_of: dict[str, st.SearchStrategy[Any]] = {
    name: st.lists(tool, max_size=3) if name == "tools" else plain_json if name in STRUCTURED else texts
    for name in LAYERS
} | {"identity": identities}


@pytest.mark.parametrize("name", LAYERS)
@given(layers_strategy, st.data())
def test_any_change_of_a_rendered_section_changes_the_key(
    name: str, layers: dict[str, Any], draw: st.DataObject
) -> None:
    one, other = ({**layers, name: draw.draw(values_of[name])} for _ in range(2))
    alone = [render_layers({"identity": "I", name: held[name]}).text for held in (one, other)]
    assume(alone[0] != alone[1])
    assert render_layers(one).cache_key != render_layers(other).cache_key


@given(layers_strategy)
def test_python_and_http_render_the_same_prompt_key(layers: dict[str, Any]) -> None:
    prompt = render_layers(layers)
    arguments: Any = {to_snake(name): value for name, value in layers.items()}
    assert layered_prompt(**arguments) == prompt
    assert prompt.cache_key == hashlib.sha256(str(prompt).encode()).hexdigest()


@given(
    layers_strategy.map(lambda layers: render_layers(layers).text)
    | words
    | st.text("#| \nTols`-ab\\", max_size=60),
    st.lists(tool | words.filter(lambda name: bool(name.strip())), max_size=4),
)
@example("# Tools\n| Tool | Description | Approval |", ["a\\", "b|", "c\nd"])
@example("# Identity\n# Tools\n```\n\n# Safety\n", ["a"])
def test_merging_twice_changes_nothing(text: str, tools: list[Any]) -> None:
    merged = augment_prompt_tools(text, tools)
    assert augment_prompt_tools(merged, tools) == merged


@given(st.lists(tool, max_size=4), st.lists(tool, max_size=4))
def test_merging_in_two_steps_is_merging_at_once(own: list[Any], toolkit: list[Any]) -> None:
    start = layered_prompt(identity="I", safety="S")
    assert augment_prompt_tools(augment_prompt_tools(start, own), toolkit) == augment_prompt_tools(
        start, [*own, *toolkit]
    )
