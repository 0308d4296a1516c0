"""Detection of columns that look like secrets or personal data. Pure. docs/guides/data.md has the rule."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

SENSITIVE: Final = "sensitive"
NOT_SENSITIVE: Final = "not-sensitive"
"""Tags of columns in the catalog; they win over the names."""

DEFAULT_PATTERNS: Final = (
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "credential",
    "credentials",
    "ssn",
    "social_security",
    "tax_id",
    "passport",
    "iban",
    "bic",
    "account_number",
    "card_number",
    "credit_card",
    "cvv",
    "cvc",
    "email",
    "e_mail",
    "mail",
    "phone",
    "mobile",
    "fax",
    "birth",
    "birthday",
    "birthdate",
    "dob",
    "address",
    "street",
    "postcode",
    "zipcode",
    "first_name",
    "firstname",
    "last_name",
    "lastname",
    "full_name",
    "fullname",
    "surname",
    "maiden_name",
    "salary",
    "gender",
    "religion",
    "diagnosis",
    "ip",
)
"""Words of a column's name: `email` is in `userEmail` and `email_address`, not in `emailed`."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+\Z")


def name_words(name: str) -> list[str]:
    """Return the words of an identifier in lower case: `depDelay2` and `dep_delay_2` have the same."""
    return [word.lower() for word in _WORD.findall(name)]


def looks_sensitive(column: str, patterns: Sequence[str] | None = None) -> bool:
    """Return whether a column's name matches one of the patterns, or, without patterns, of the defaults. A
    pattern with `*` must match the whole name, another one some of its words."""
    words = name_words(column)
    joined = f" {' '.join(words)} "
    for pattern in DEFAULT_PATTERNS if patterns is None else patterns:
        if "*" in pattern:
            if fnmatch.fnmatchcase(column.lower(), pattern.lower()):
                return True
        elif f" {' '.join(name_words(pattern))} " in joined:
            return True
    return False


def look_personal(values: Iterable[object]) -> bool:
    """Return whether most of these values of a column look like e-mail addresses, whatever its name is."""
    texts = [value for value in values if isinstance(value, str)]
    return bool(texts) and sum(_EMAIL.match(text) is not None for text in texts) * 2 > len(texts)


def sensitive_columns(
    tables: Iterable[tuple[str, Sequence[str]]],
    patterns: Sequence[str] | None,
    tagged: Mapping[str, Mapping[str, bool]],
) -> dict[str, list[str]]:
    """Return the sensitive columns by the plain name of their table. `tagged` says of single columns of a
    table, in lower case, what their tags say."""
    by_table: dict[str, list[str]] = {}
    for table, columns in tables:
        plain = table.rpartition(".")[2]
        tags = tagged.get(table.lower(), {})
        for column in columns:
            if tags.get(column.lower(), looks_sensitive(column, patterns)):
                by_table.setdefault(plain, []).append(column)
    return by_table
