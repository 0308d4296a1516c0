"""Check a statement before a database sees it, and find out which of its columns carry sensitive values.

This is the first of several safeguards: it gives a model errors with a position. What a statement may do is
enforced by the databases (engines/).

Sensitive columns are followed by name, and in doubt a column is sensitive: a guard against values that reach
a prompt by accident, not against somebody who wants to read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from app.catalog.engines.base import Dialect
from app.catalog.problems import StatementProblem

MAX_SQL_CHARS: Final = 20_000
_CHANGES: Final = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.Merge,
    exp.Create,
    exp.Drop,
    exp.Alter,
    exp.Copy,
    exp.Command,
    exp.Attach,
    exp.Detach,
    exp.Pragma,
    exp.Set,
    exp.Use,
    exp.Into,
    exp.Lock,
    exp.TruncateTable,
)
_RUNS_TEXT: Final = frozenset({"query", "query_table", "query_to_xml", "query_to_xmlschema", "cursor_to_xml"})
"""Functions that run SQL in a string, which nobody has checked."""

_SQLITE_PARAMETER: Final = re.compile(r"\$(\d+)\Z")


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """One SELECT. `parameters` is how many values it binds; `tables` are the names that it reads."""

    sql: str
    parameters: int
    tables: tuple[str, ...]
    tree: exp.Expr


def check_statement(sql: str, dialect: Dialect) -> CheckedStatement:
    """Return the statement if it is one SELECT, or one WITH ... SELECT. Raise StatementProblem."""
    if len(sql) > MAX_SQL_CHARS:
        raise StatementProblem(
            "bad_sql", f"The statement has {len(sql)} characters; at most {MAX_SQL_CHARS} are allowed."
        )
    try:
        trees = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
    except ParseError as error:
        raise StatementProblem("bad_sql", _position(error)) from error
    except SqlglotError as error:
        raise StatementProblem("bad_sql", f"The SQL could not be parsed: {str(error)[:300]}") from error
    except RecursionError as error:
        raise StatementProblem("bad_sql", "The SQL is nested too deeply to be parsed.") from error
    if len(trees) != 1:
        what = "no statement" if not trees else f"{len(trees)} statements"
        raise StatementProblem("bad_sql", f"There must be exactly one statement; this text has {what}.")
    tree = trees[0]
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        raise StatementProblem(
            "not_read_only",
            f"Only SELECT, or WITH ... SELECT, can be run; this is {_statement_name(tree)}.",
        )
    for node in tree.find_all(*_CHANGES):
        raise StatementProblem(
            "not_read_only",
            f"The statement contains {_statement_name(node)}; a source can only be read.",
        )
    for function in tree.find_all(exp.Anonymous):
        if str(function.name).lower() in _RUNS_TEXT:
            raise StatementProblem(
                "not_read_only", f"The function {function.name} runs SQL in a string: write the SQL itself."
            )
    tables = tuple(dict.fromkeys(_table_name(table) for table in tree.find_all(exp.Table)))
    return CheckedStatement(sql, _count_parameters(tree), tables, tree)


def check_parameters(statement: CheckedStatement, params: Sequence[object]) -> None:
    """Raise StatementProblem unless there is one value for each parameter."""
    if statement.parameters != len(params):
        parameters = ", ".join(f"${n}" for n in range(1, statement.parameters + 1)) or "no parameters"
        raise StatementProblem(
            "bad_params", f"The statement has {parameters}; `params` has {len(params)} values."
        )


def _count_parameters(tree: exp.Expr) -> int:
    numbers: set[int] = set()
    for node in tree.find_all(exp.Parameter, exp.Placeholder, exp.Column):
        if isinstance(node, exp.Column):
            match = _SQLITE_PARAMETER.match(node.name)
            if match is not None and not node.table and not node.this.quoted:
                numbers.add(int(match[1]))
            continue
        text = node.name if isinstance(node, exp.Parameter) else str(node.this or "")
        if not text.isdecimal():
            raise StatementProblem(
                "bad_params", f"The parameter {node.sql()} is not allowed: write $1, $2 and so on."
            )
        numbers.add(int(text))
    if numbers != set(range(1, len(numbers) + 1)):
        listed = ", ".join(f"${n}" for n in sorted(numbers))
        raise StatementProblem("bad_params", f"Parameters are numbered $1, $2 and so on; this has {listed}.")
    return len(numbers)


def _position(error: ParseError) -> str:
    first = error.errors[0] if error.errors else None
    if first is None:
        return f"The SQL could not be parsed: {str(error)[:300]}"
    near = f"{(first['start_context'] or '')[-40:]}{first['highlight'] or ''}"
    why = re.sub(r" for <class '.*'>", "", str(first["description"]))
    return (
        f"The SQL could not be parsed, at line {first['line']}, column {first['col']}, after {near!r}: {why}."
    )


def _statement_name(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Command):
        return str(tree.this).upper()
    if isinstance(tree, exp.Lock):
        return "FOR UPDATE"
    return "INTO" if isinstance(tree, exp.Into) else type(tree).__name__.upper()


def _table_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)


# -- sensitive columns ---------------------------------------------------------------------------------------


def reads_sensitive_table(statement: CheckedStatement, sensitive: Mapping[str, Iterable[str]]) -> bool:
    """Return whether the statement reads a table that has sensitive columns, whichever columns it names."""
    return not _table_names(statement).isdisjoint(table.lower() for table in sensitive)


def _table_names(statement: CheckedStatement) -> set[str]:
    return {name.rpartition(".")[2].lower() for name in statement.tables}


def sensitive_outputs(
    statement: CheckedStatement, sensitive: Mapping[str, Iterable[str]], columns: Sequence[str]
) -> list[bool]:
    """Return for each column of the result whether it may carry the values of a sensitive column.

    `sensitive` has the sensitive columns of tables by the table's plain name; `columns` are the names in
    the result.
    """
    tree = statement.tree
    read = _table_names(statement)
    names = {
        c.lower()
        for table, sensitive_names in sensitive.items()
        if table.lower() in read
        for c in sensitive_names
    }
    if not names:
        return [False] * len(columns)
    # A row as a whole has the name of its table.
    names |= {table.lower() for table in sensitive if table.lower() in read}
    if any(tree.find_all(exp.Pivot, exp.PositionalColumn)) or _combines_stars(tree):
        return [True] * len(columns)  # columns whose names say nothing of what is in them
    try:
        _follow_aliases(tree, names)
        outputs = [list(select.expressions) for select in _outermost_selects(tree)]
        return [
            column.lower() in names
            or any(_output_is_sensitive(projections, index, names) for projections in outputs)
            for index, column in enumerate(columns)
        ]
    except RecursionError:
        return [True] * len(columns)


def _output_is_sensitive(projections: list[exp.Expr], index: int, names: set[str]) -> bool:
    """Return whether the column at `index` is computed from one of the names. A star shifts positions, so
    that any sensitive expression beside it counts."""
    if any(isinstance(p, exp.Star | exp.Columns) or p.is_star for p in projections):
        return any(_mentions(p, names) for p in projections)
    return index >= len(projections) or _mentions(projections[index], names)


def _follow_aliases(tree: exp.Expr, names: set[str]) -> None:
    """Add the aliases of everything that is computed from one of `names`, until there are no more."""
    before = -1
    while before != len(names):
        before = len(names)
        for select in tree.find_all(exp.Select):
            for projection in select.expressions:
                if projection.alias and _mentions(projection, names):
                    names.add(projection.alias.lower())
        for table in tree.find_all(exp.Table):
            if table.name.lower() in names and table.alias:
                names.add(table.alias.lower())
        for alias in tree.find_all(exp.TableAlias):
            if alias.columns and alias.parent is not None and _provides(alias.parent, names):
                names.update(column.name.lower() for column in alias.columns)
        for operation in tree.find_all(exp.SetOperation):
            for same_place in zip(*(s.expressions for s in _outermost_selects(operation)), strict=False):
                if any(_mentions(projection, names) for projection in same_place):
                    names.update(p.alias_or_name.lower() for p in same_place if p.alias_or_name)
        for star in tree.find_all(exp.Star):
            for rename in star.args.get("rename") or ():
                if _mentions(rename, names):
                    names.add(rename.alias.lower())
        for derived in tree.find_all(exp.CTE, exp.Subquery, exp.Unnest, exp.Lateral):
            if derived.alias and _has_sensitive_output(derived, names):
                names.add(derived.alias.lower())


def _combines_stars(tree: exp.Expr) -> bool:
    """Return whether a set operation has a star: its columns get their names from other columns, by position."""
    return any(
        projection.is_star
        for operation in tree.find_all(exp.SetOperation)
        for select in _outermost_selects(operation)
        for projection in select.expressions
    )


def _provides(source: exp.Expr, names: set[str]) -> bool:
    """Return whether what a list of column names is for has one of the names."""
    if isinstance(source, exp.Table):
        return source.name.lower() in names
    return _mentions(source, names)


def _has_sensitive_output(derived: exp.Expr, names: set[str]) -> bool:
    inner = derived.this
    if isinstance(inner, exp.Query):
        projections = [p for select in _outermost_selects(inner) for p in select.expressions]
        return any(p.is_star or _mentions(p, names) for p in projections)
    return _mentions(derived, names)


def _outermost_selects(tree: exp.Expr) -> Iterator[exp.Select]:
    if isinstance(tree, exp.Select):
        yield tree
    elif isinstance(tree, exp.SetOperation):
        yield from _outermost_selects(tree.left)
        yield from _outermost_selects(tree.right)
    elif isinstance(tree, exp.Subquery):
        yield from _outermost_selects(tree.this)


def _mentions(tree: exp.Expr, names: set[str]) -> bool:
    """Return whether an expression uses one of the names, or a star inside of it, other than to count it."""
    if isinstance(tree, exp.Count):
        return False
    if isinstance(tree, exp.Column):
        return tree.name.lower() in names
    if isinstance(tree, exp.Columns):
        return True
    return any(_is_star(child) or _mentions(child, names) for child in tree.iter_expressions())


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))
