"""Untrusted strings in a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.cli import terminal_text
from plangate.printable import to_printable

HOSTILE = "a\x1b[2J\x1b]0;title\x07b\r\nc\x9bd\u202ee\u2028f\x7fg\ud800h\u200bi"
DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def harmless(line: str) -> bool:
    return not any(unicodedata.category(c) in DANGEROUS for c in line)


def test_control_characters_are_written_out() -> None:
    said = terminal_text.escape_text(HOSTILE)
    assert said == r"a\x1b[2J\x1b]0;title\x07b c\x9bd\u202ee f\x7fg\ud800h\u200bi"
    assert terminal_text.escape_text("Zoë 航空 ✈") == "Zoë 航空 ✈"


@given(st.text(st.characters(codec=None)))
def test_terminal_control_sequences_are_removed(given_text: str) -> None:
    assert harmless(terminal_text.escape_text(given_text))
    assert all(harmless(line) for line in terminal_text.escape_lines(given_text))
    assert "\n" not in "".join(terminal_text.escape_lines(given_text))


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_ascii_and_means_the_same(value: object) -> None:
    said = terminal_text.as_json(value)
    assert re.fullmatch(r"[\n -~]*", said)
    assert json.loads(said) == value


def test_lines_keep_their_blanks() -> None:
    assert terminal_text.escape_lines('{\n  "a": 1\r\n}') == ["{", '  "a": 1', "}"]
    assert terminal_text.escape_lines("id\tname   cost\n\xa01  \rx  ") == ["id  name   cost", " 1   x"]


def test_invisible_letters_are_escaped() -> None:
    assert (
        terminal_text.escape_text("a\u3164b\u115f\u1160\uffa0\u2800") == r"a\u3164b\u115f\u1160\uffa0\u2800"
    )
    assert terminal_text.escape_text("✈\ufe0f") == "✈\ufe0f"  # how an emoji is written


ZALGO = "Z" + "\u0301\u0300\u0302\u20dd" * 50


@pytest.mark.parametrize(
    "write", [terminal_text.escape_text, to_printable, lambda said: terminal_text.escape_lines(said)[0]]
)
def test_combining_marks_are_bounded(write: Any) -> None:
    said = write(ZALGO)
    assert said.startswith(ZALGO[:5] + "\\u0301")
    assert most_marks(said) == 4
    assert write("\u0301a").startswith("\\u0301")  # nothing of ours gets a mark
    for word in ("Việt Nam", "Vie\u0323\u0302t", "שָׁלוֹם", "ภาษาไทยที่", "हिन्दी", "བོད་སྐད", "1\ufe0e\u20e3"):
        assert terminal_text.escape_text(word) == word


@given(st.text(st.characters(categories=["L", "M", "Zs"])))
def test_stacked_marks_on_a_line_are_bounded(given_text: str) -> None:
    for said in (
        terminal_text.escape_text(given_text),
        to_printable(given_text),
        *terminal_text.escape_lines(given_text),
    ):
        assert most_marks(said) <= 4
        assert not unicodedata.category(said[:1] or " ").startswith("M")


def most_marks(line: str) -> int:
    """The most combining marks in a row."""
    runs = "".join("m" if unicodedata.category(c).startswith("M") else " " for c in line).split()
    return max(map(len, runs), default=0)


# -- what somebody decides about

UNSEEN = [
    "\u3164", "\u115f", "\u1160", "\uffa0", "\u2800", "\u034f", "\ufe0f", "\U000e0100", "\u180b", "\xa0", "\u3000",
    "\u200b", "\u2060", "\ufeff", "\u200e", "\u200f", "\u202e", "\u2066", "\xad", "\x1b", "\x7f", "\x9b", "\u2028",
    "\U000e0041", "\t", "\n", "\r", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("char", UNSEEN, ids=lambda char: f"{ord(char):04x}")
def test_invisible_characters_are_json_escapes(char: str) -> None:
    said = to_printable(f"pay{char}me")
    assert said.isascii()
    assert json.loads(f'"{said}"') == f"pay{char}me"
    (line,) = terminal_text.printable_json(json.dumps(f"pay{char}me", ensure_ascii=False))
    assert line == f'"{said}"'


@pytest.mark.parametrize(
    ("given_text", "said"),
    [
        (" a b ", r"\u0020a b\u0020"),
        ("a  b", "a  b"),
        (f"a{' ' * 9}b", "a" + r"\u0020" * 9 + "b"),
        (" ", r"\u0020"),
        (r"\u3164", r"\\u3164"),
        ("\\\u3164", r"\\\u3164"),
        ("Zoë 航空 ✈", "Zoë 航空 ✈"),
    ],
)
def test_blanks_and_backslashes_are_distinguished(given_text: str, said: str) -> None:
    assert to_printable(given_text) == said


SEEN = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from([*UNSEEN[:-1], " ", "\\", '"', "u", "0"])
)


@given(st.recursive(SEEN | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.none(),
                    lambda inner: st.lists(inner) | st.dictionaries(SEEN, inner)))  # fmt: skip
def test_a_subject_is_shown_completely(value: object) -> None:
    lines = terminal_text.printable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert json.loads("\n".join(lines)) == value
    shown = "".join(lines)
    assert shown.isprintable()
    assert not any(char in shown for char in UNSEEN)
    assert all(line == line.rstrip() for line in lines)


@given(SEEN, SEEN)
def test_different_texts_look_different(one: str, other: str) -> None:
    assert (to_printable(one) == to_printable(other)) == (one == other)


def test_numbers_are_shown_digit_for_digit() -> None:
    assert terminal_text.printable_json('{"a":[1.0,1,1e5,-0.0,12345678901234567890],"b":[],"c":{},"a":2}') == [
        "{", '  "a": [', "    1.0,", "    1,", "    1e5,", "    -0.0,", "    12345678901234567890", "  ],", '  "b": [],',
        '  "c": {},', '  "a": 2', "}",
    ]  # fmt: skip


def test_text_that_is_not_json_is_one_line() -> None:
    assert terminal_text.printable_json('{"a": 1}\n{"b": \x1b') == [r'{"a": 1}\n{"b": \u001b']


@pytest.mark.parametrize(
    ("said", "width", "expected"),
    [("short", 5, "short"), ("longer", 5, "lo..."), ("a\nb", 5, "a b"), ("abcd", 2, "...")],
)
def test_a_line_is_cut(said: str, width: int, expected: str) -> None:
    assert terminal_text.truncate(said, width) == expected


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (None, ""),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_949, "59.9 s"),
        (59_960, "1 min 00 s"),
        (3_599_000, "59 min 59 s"),
        (7_380_000, "2 h 03 min"),
    ],
)
def test_times_are_for_people(ms: float | None, expected: str) -> None:
    assert terminal_text.format_duration(ms) == expected


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        (None, ""),
        (0, "$0.00"),
        (0.000008, "<$0.0001"),
        (0.00012, "$0.0001"),
        (0.5, "$0.5000"),
        (12.345, "$12.35"),
    ],
)
def test_an_unknown_cost_is_never_zero(usd: float | None, expected: str) -> None:
    assert terminal_text.format_money(usd) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (20_000_000, "20.0 MB"), (5 * 10**12, "5000.0 GB")],
)
def test_sizes_are_for_people(count: int, expected: str) -> None:
    assert terminal_text.format_size(count) == expected


def test_columns_fit_their_content() -> None:
    assert terminal_text.table([["a", "x" * 9, "1"], ["bb", "y", ""]], [0, 6, 4]) == [
        "a   xxx...  1",
        "bb  y",
    ]


def test_reasoning_tokens_are_part_of_output_tokens() -> None:
    used = {
        "inputTokens": 1,
        "outputTokens": 20,
        "cacheReadTokens": 300,
        "cacheWriteTokens": 4000,
        "reasoningTokens": 19,
    }
    assert terminal_text.total_tokens(used) == 4321
