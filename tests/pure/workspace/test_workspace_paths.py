"""Paths that a workspace accepts, and their normalized form."""

from __future__ import annotations

import unicodedata

import pytest
from plangate.workspace.paths import (
    MAX_PATH_DEPTH,
    PathRejected,
    ancestors,
    folder_prefix,
    normalize,
    normalize_prefix,
    skeleton,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a.md", "a.md"),
        ("./tasks//wrk_1/./out.json", "tasks/wrk_1/out.json"),
        ("tasks/", "tasks"),
        ("cafe\u0301.txt", "café.txt"),
        (".env", ".env"),
        ("a..b/c...d", "a..b/c...d"),
        ("a b, (c) 'd' #?%&+=*<>|:.txt", "a b, (c) 'd' #?%&+=*<>|:.txt"),
        ("отчёт_q3.txt", "отчёт_q3.txt"),
        ("文書/報告書.md", "文書/報告書.md"),
        ("❤\ufe0f.md", "❤\ufe0f.md"),
        ("한글.md", "한글.md"),
        ("x" * 255, "x" * 255),
        ("/".join("x" * MAX_PATH_DEPTH), "/".join("x" * MAX_PATH_DEPTH)),
    ],
)
def test_a_path_is_normalised(given: str, kept: str) -> None:
    assert normalize(given) == kept
    assert normalize(kept) == kept


ABSOLUTE = "it is absolute: paths are relative to the workspace, such as notes/today.md"
OUT = "it contains '..', and nothing leads out of the workspace"
UNSEEN = "which cannot be seen or typed"
SPACES = "a name in it begins or ends with a space, or ends with a dot"
ALIKE = "which looks like another character"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "it names no file"),
        ("./", "it names no file"),
        ("/etc/passwd", ABSOLUTE),
        ("//etc/passwd", ABSOLUTE),
        ("..", OUT),
        ("../x", OUT),
        ("a/../../x", OUT),
        ("a/..", OUT),
        ("..\\x", "it contains a backslash; separate names with /"),
        ("C:\\x", "it contains a backslash; separate names with /"),
        ("a\0b", f"it contains U+0000 (control character), {UNSEEN}"),
        ("a\nb", f"it contains U+000A (control character), {UNSEEN}"),
        ("a\x7fb", f"it contains U+007F (control character), {UNSEEN}"),
        ("a\u200bb", f"it contains U+200B (ZERO WIDTH SPACE), {UNSEEN}"),
        ("gpj.\u202eexe", f"it contains U+202E (RIGHT-TO-LEFT OVERRIDE), {UNSEEN}"),
        ("a\u00a0b", f"it contains U+00A0 (NO-BREAK SPACE), {UNSEEN}"),
        ("a\ufffdb", f"it contains U+FFFD (REPLACEMENT CHARACTER), {UNSEEN}"),
        ("a\U0010ffffb", f"it contains U+10FFFF (control character), {UNSEEN}"),
        ("a\u115fb", f"it contains U+115F (HANGUL CHOSEONG FILLER), {UNSEEN}"),
        ("a\u1160b", f"it contains U+1160 (HANGUL JUNGSEONG FILLER), {UNSEEN}"),
        ("a\u2800b", f"it contains U+2800 (BRAILLE PATTERN BLANK), {UNSEEN}"),
        ("a\u034fb", f"it contains U+034F (COMBINING GRAPHEME JOINER), {UNSEEN}"),
        ("a\ufe0fb", f"it contains U+FE0F (VARIATION SELECTOR-16), {UNSEEN}"),
        ("❤\ufe0f\ufe0f", f"it contains U+FE0F (VARIATION SELECTOR-16), {UNSEEN}"),
        ("\ufe0f❤", f"it contains U+FE0F (VARIATION SELECTOR-16), {UNSEEN}"),
        ("a\U000e0100b", f"it contains U+E0100 (VARIATION SELECTOR-17), {UNSEEN}"),
        ("a╱b", f"it contains U+2571 (BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT), {ALIKE}"),
        ("．．/x", f"it contains U+FF0E (FULLWIDTH FULL STOP), {ALIKE}"),
        ("a／b", f"it contains U+FF0F (FULLWIDTH SOLIDUS), {ALIKE}"),
        ("a∕b", f"it contains U+2215 (DIVISION SLASH), {ALIKE}"),
        ("a․md", f"it contains U+2024 (ONE DOT LEADER), {ALIKE}"),
        ("ﬁle", f"it contains U+FB01 (LATIN SMALL LIGATURE FI), {ALIKE}"),
        ("pаypal.txt", "a word in it mixes Cyrillic and Latin letters, which look alike"),
        ("x/ y", SPACES),
        ("x /y", SPACES),
        ("...", SPACES),
        ("a.", SPACES),
        ("x" * 256, "a name in it has 256 bytes, and at most 255 are allowed"),
        ("/".join(["x" * 200] * 5), "it has 1004 bytes, and at most 1000 are allowed"),
        (
            "/".join("x" * (MAX_PATH_DEPTH + 1)),
            f"it has {MAX_PATH_DEPTH + 1} names, and at most {MAX_PATH_DEPTH} are allowed",
        ),
    ],
)
def test_escaping_and_deceptive_paths_are_rejected(given: str, why: str) -> None:
    with pytest.raises(PathRejected) as error:
        normalize(given)
    assert str(error.value).endswith(f" is not allowed: {why}.")
    assert str(error.value).isascii() or "…" in given


def test_look_alike_paths_share_a_skeleton() -> None:
    assert skeleton("сору/а.txt") == skeleton("copy/a.txt")
    assert skeleton("АВС") == skeleton("ABC")
    assert skeleton("a–b") == skeleton("a-b")
    assert len({skeleton(p) for p in ("Makefile", "makefile", "file1", "filel", "é", "e")}) == 6


def test_prefixes_and_folders() -> None:
    assert [normalize_prefix(p) for p in ("", "./", "tasks/", "tasks/a", "a//b/")] == [
        "",
        "",
        "tasks/",
        "tasks/a",
        "a/b/",
    ]
    assert ancestors("a/b/c") == ["a", "a/b"]
    assert [folder_prefix(p) for p in (None, "", ".", "./", "a", "a/", "a/.", "./a//b")] == [
        *("", "", "", ""),
        *("a/", "a/", "a/", "a/b/"),
    ]


@pytest.mark.parametrize("prefix", ["v1.", "my ", "a/.", "a/v1.", "отч", "cafe\u0301 "])
def test_a_prefix_may_end_in_the_middle_of_a_name(prefix: str) -> None:
    assert normalize_prefix(prefix) == unicodedata.normalize("NFC", prefix)


@pytest.mark.parametrize("prefix", ["../", "/etc", "/", "a\\", "a\u202e", "a/../b", " a", "x" * 256])
def test_an_impossible_prefix_is_rejected(prefix: str) -> None:
    with pytest.raises(PathRejected) as refused:
        normalize_prefix(prefix)
    shown = ascii(prefix if len(prefix) <= 80 else prefix[:79] + "…")
    assert str(refused.value).startswith(f"The path {shown} is not allowed: ")


def test_variation_selectors_do_not_distinguish_paths() -> None:
    assert skeleton("❤\ufe0f.md") == skeleton("❤\ufe0e.md") == skeleton("❤.md")
