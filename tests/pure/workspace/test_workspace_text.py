"""Files as models read and search them."""

from __future__ import annotations

import pytest
from plangate.workspace import text
from plangate.workspace.regex import Pattern, PatternRejected, compile_glob
from plangate.workspace.text import LineWindow, NotText, replace_once


def read(data: bytes, offset: int = 1, limit: int = 2000, piece: int = 7) -> str:
    window = LineWindow(offset, limit)
    for at in range(0, len(data), piece):
        if window.feed(data[at : at + piece]):
            break
    return window.text()


LINES = "".join(f"line {n}\n" for n in range(1, 11)).encode()


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_some_lines_of_a_file(piece: int) -> None:
    assert read(LINES, piece=piece) == LINES.decode()[:-1]
    assert read(LINES[:-1], piece=piece) == LINES.decode()[:-1]
    assert read(LINES, 9, piece=piece) == "line 9\nline 10"
    assert read(LINES, 2, 2, piece=piece) == "line 2\nline 3\n[Lines 2 to 3 of more; continue with offset 4.]"
    assert read(LINES, 9, 2, piece=piece) == "line 9\nline 10"
    assert read(LINES, 11, piece=piece) == "[The file has fewer than 11 lines.]"
    assert read(b"a\r\n\r\nb", piece=piece) == "a\n\nb"
    assert read("é😀\n".encode() * 3, piece=piece) == "é😀\né😀\né😀"
    assert read(b"") == "[The file is empty.]"


def test_long_lines_and_long_files_are_cut_with_a_marker() -> None:
    long = b"x" * 5000 + b"\nnext"
    shown = read(long, piece=999)
    assert shown == "x" * 2000 + " [line truncated: it has 5000 bytes]\nnext"
    many = read(b"y" * 1999 + b"\n" + (b"y" * 1999 + b"\n") * 100, piece=4096)
    assert many.endswith("[Lines 1 to 20 of more; continue with offset 21.]")
    assert len(many) < text.MAX_TEXT_BYTES + 100
    wide = read("字".encode() * 20 + b"\n", piece=4096)
    assert wide == "字" * 20
    wide = read(("字" * 1000 + "\n").encode() * 100, piece=4096)
    assert wide.endswith("[Lines 1 to 14 of more; continue with offset 15.]")
    assert len(wide.encode()) < text.MAX_TEXT_BYTES + 4 * text.MAX_LINE_CHARS


def test_an_endless_line_is_not_buffered() -> None:
    window = LineWindow()
    for _ in range(1000):
        window.feed(b"x" * 100_000)
    assert len(window._line) < 10_000
    assert window.text().endswith("[line truncated: it has 100000000 bytes]")


@pytest.mark.parametrize("data", [b"\0", b"ab\0cd", b"\xff\xfe", b"\x89PNG\r\n"])
def test_binary_files_are_rejected(data: bytes) -> None:
    with pytest.raises(NotText):
        LineWindow().feed(data)


def test_a_file_with_nul_is_binary() -> None:
    data = b"x" * text.SNIFF_BYTES + b"\nNUL: \0\n"
    assert not text.is_text(data)
    for piece in (7, text.SNIFF_BYTES, len(data)):
        with pytest.raises(NotText):
            read(data, piece=piece)
        with pytest.raises(NotText):
            read(data, 3, piece=piece)


def test_as_many_lines_as_fit_are_shown() -> None:
    lines = ["x" * 999] * 50
    assert [text.count_fitting_lines(lines, most) for most in (0, 1, 40, 50)] == [0, 1, 40, 40]
    assert text.count_fitting_lines(["字" * 333] * 50, 50) == 40
    assert text.count_fitting_lines(["x" * 50_000] * 2, 2) == 1
    assert text.count_fitting_lines(["a", "b"], 5) == 2


def test_a_character_at_the_read_boundary_is_text() -> None:
    data = b"x" * (text.SNIFF_BYTES - 1) + "é".encode()
    assert text.is_text(data)


def test_a_text_is_replaced_if_it_occurs_once() -> None:
    assert replace_once("a b c", "b", "\\1 $x") == "a \\1 $x c"
    assert replace_once("a b b", "b", "x") == 2
    assert replace_once("baaab", "aa", "x") == 2  # which of the two?
    assert replace_once("baab", "aa", "x") == "bxb"
    assert replace_once("abcab", "ab", "x") == 2
    many = "a" * 2_000_000
    assert replace_once(many, many[:1_200_000], "x") == 2  # at each of 800,000 places
    assert replace_once("a", "b", "x") == 0


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.md", ["a.md", ".md"], ["a/b.md", "a.mdx", "aXmd"]),
        ("**/*.md", ["a.md", "a/b.md", "a/b/c.md"], ["a.txt"]),
        ("tasks/**", ["tasks/a", "tasks/a/b"], ["tasks", "other/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("?.[ch]", ["a.c", "b.h"], ["a.d", "ab.c", "/.c"]),
        ("[!a]b", ["xb", "bb"], ["ab", "/b", "b"]),
        ("a+(b)|c.{1}$", ["a+(b)|c.{1}$"], ["aa", "ab"]),
        ("[", ["["], ["x"]),
    ],
)
def test_globs(pattern: str, matching: list[str], other: list[str]) -> None:
    made = compile_glob(pattern)
    assert [p for p in [*matching, *other] if made.matches(p)] == matching


def test_patterns_do_not_stall_and_say_what_they_are_not() -> None:
    assert not Pattern("(a+)+$").matches("a" * 100_000 + "b")
    assert not compile_glob("*a" * 200 + "b").matches("a" * 1000)
    assert Pattern("HELLO", ignore_case=True).matches("say hello")
    for bad in ("(", "(?=a)b", r"(a)\1", "((a{1000}){1000}){1000}"):
        with pytest.raises(PatternRejected):
            Pattern(bad)
