"""The hand-over example as data, and its own functions: the check, and the replacement of a model's writing."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from plangate import CallContext, RuntimeSpec
from plangate.spec.assembly import assemble
from plangate.spec.toolkits import builtin_tools

from app.llm.scripted import parse_script
from examples.handover import rates, standin
from examples.handover.__main__ import FAULTY, FILES, REPORT
from examples.handover.script import as_script, in_words, own
from examples.handover.system import Checked, check_table, define

TABLE = (FILES / FAULTY).read_text()
GAP = "From 19.9 to 20.0 kg there is no price. Change `below_kg = 19.9` to `below_kg = 20.0`."
OVERLAP = "From 4.5 to 5.0 kg there are two prices. Change `from_kg = 4.5` to `from_kg = 5.0`."
RECORD = {"id": "art_" + "0" * 26, "summary": "A fault."}


def wire(*, scripted: bool) -> dict[str, Any]:
    return define(tenant="local", model="m-1", scripted=scripted).wire


@pytest.mark.parametrize("scripted", [True, False])
def test_a_dump_is_the_wire_form(scripted: bool) -> None:
    dumped = json.loads(json.dumps(wire(scripted=scripted)))
    assert RuntimeSpec.model_validate(dumped).to_wire() == dumped
    assert assemble(dumped).wire == dumped


def test_the_scripted_system_has_only_one_more_tool() -> None:
    without, asked = wire(scripted=True), wire(scripted=False)
    assert without.pop("interpreter") == "scripted" and "interpreter" not in asked
    assert [tool["name"] for tool in asked["tools"]] == ["check_table"]
    without["tools"] = [tool for tool in without["tools"] if tool["name"] != "compose"]
    row = "\n| compose | Writes what a model would write after reading the same. | never |"
    for agent in without["agents"]:
        agent["systemPrompt"] = agent["systemPrompt"].replace(row, "")
    for agent in (*without["agents"], *asked["agents"]):
        agent["tools"] = [name for name in agent.get("tools", ()) if name != "compose"]
    assert without == asked


def test_the_coordinator_can_neither_read_nor_write_a_file() -> None:
    spec = define(tenant="local", model="m-1", scripted=False).spec
    held = {agent.name: {tool.name for tool in builtin_tools(spec, agent)} for agent in spec.agents}
    artifacts = {"artifact_publish", "artifact_get", "artifact_list"}
    assert held == {
        "coordinator": {"call_agent", "artifact_get", "artifact_list"},
        "architect": {"read", "write", *artifacts},
        "coder": {"read", "edit", *artifacts},
        "tester": {"read", "write", *artifacts},
    }


def test_scripts_know_only_the_id_of_the_report() -> None:
    text = as_script(RECORD)
    assert text.count("art_") == text.count(RECORD["id"]) == 1
    assert RECORD["id"] in in_words(RECORD) and RECORD["summary"] in in_words(RECORD)
    for step in parse_script(text).steps:
        assert step.tool == "call_agent"
        for inner in step.args["prompt"]["script"]:
            assert inner["tool"] != "write" or set(inner["args"]["content"]) == {"$result"}


def test_an_expression_of_the_called_agent_is_a_literal_for_the_caller() -> None:
    assert own("[0].path") == {"$result": '`{"$result": "[0].path"}`'}


# The check.


def test_the_table_has_the_reported_fault_and_one_more() -> None:
    assert rates.find_faults(TABLE) == [OVERLAP, GAP]
    assert rates.find_faults((FILES / "rates/abroad.toml").read_text()) == []


def band(start: float, end: float, cents: int) -> str:
    return f"[[band]]\nfrom_kg = {start}\nbelow_kg = {end}\nprice_cents = {cents}\n"


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (band(0.0, 5.0, 5) + band(5.0, 6.0, 5), []),
        (band(1.0, 5.0, 5), ["Nothing has a price below 1.0 kg."]),
        (band(0.0, 0.0, 5), ["The band from 0.0 kg ends at 0.0 kg: there is nothing in it."]),
        (
            band(0.0, 5.0, 5) + band(5.0, 6.0, 4),
            ["The band from 5.0 kg is cheaper than the one before it."],
        ),
        (band(0.0, 5.0, 0), ["band.0.price_cents: Input should be greater than 0."]),
        (band(0.0, 5.0, 1) + "more = 1\n", ["band.0.more: Extra inputs are not permitted."]),
        ("", ["band: Field required."]),
    ],
)
def test_faults_of_tables(table: str, found: list[str]) -> None:
    assert rates.find_faults(table) == found


def test_invalid_toml_is_a_fault() -> None:
    (fault,) = rates.find_faults("[[band\n")
    assert fault.startswith("This is not TOML: ")


class Published:
    """Artifacts of which there is one."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, id: str) -> bytes:
        assert id == RECORD["id"]
        return self._text.encode()


def checked_by_id(table: str) -> Checked:
    found = check_table({"patch": RECORD["id"]}, CallContext({"artifacts": Published(table)}, {}))
    return Checked.model_validate(found)


def test_the_check_report_names_its_findings() -> None:
    checked = checked_by_id(TABLE)
    assert (checked.passed, checked.summary) == (False, "Failed with 2 faults: the report names them.")
    assert f"- {OVERLAP}\n- {GAP}\n" in checked.report
    good = checked_by_id(band(0.0, 1.0, 1))
    assert (good.passed, good.summary) == (True, "Passed: every parcel has exactly one price.")


# What stands in for a model.


def test_the_design_follows_the_report_and_the_change_the_design() -> None:
    design = standin.design((FILES / REPORT).read_text(), TABLE)
    assert design["summary"] == "Closes the gap that 19.95 kg falls into: the band below it is made longer."
    change = standin.change(design["content"], TABLE)
    assert (change["old"], change["new"]) == ("below_kg = 19.9", "below_kg = 20.0")
    patched = TABLE.replace(change["old"], change["new"])
    assert rates.find_faults(patched) == [OVERLAP]
    second = standin.change(checked_by_id(patched).report, patched)
    assert rates.find_faults(patched.replace(second["old"], second["new"])) == []


def test_an_agent_cannot_write_about_unread_files() -> None:
    with pytest.raises(ValueError, match=re.escape("The report names no weight.")):
        standin.design("Something is wrong.", TABLE)
    with pytest.raises(ValueError, match=re.escape("The table has a price for 3.0 kg.")):
        standin.design("3 kg", TABLE)
    with pytest.raises(ValueError, match=re.escape("The text asks for no change.")):
        standin.change("It is wrong.", TABLE)
    with pytest.raises(ValueError, match=re.escape("The table has 'x = 1' 0 times.")):
        standin.change("Change `x = 1` to `x = 2`", TABLE)


def test_the_files_match_the_readme() -> None:
    assert sorted(p.name for p in FILES.rglob("*.*")) == [
        "abroad.toml",
        "domestic.toml",
        "report.md",
        "rules.md",
    ]
    assert [b["from_kg"] for b in tomllib.loads(TABLE)["band"]] == [0.0, 2.0, 4.5, 10.0, 20.0]
