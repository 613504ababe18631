"""The `blockhouse` command. Every package adds its commands by the entry points group `blockhouse.commands`.

Only the command that was asked for is imported: `blockhouse --help` must never wait for Spark or a client library.
An entry point names a Typer app (a group of commands) or a function (one command), and the extra that brings what it
imports; the first line of its module's docstring is its summary. Commands of the group `blockhouse.checkout_commands`
need a checkout of the source: where their package is missing they are never listed as commands, and the help names
where they are found.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import typer

from blockhouse.cli.extras import how_to_install
from blockhouse.errors import BlockhouseError

GROUP = "blockhouse.commands"
CHECKOUT_GROUP = "blockhouse.checkout_commands"
_CHECKOUT = "a checkout of the source has them, after `make setup`"
_COMPLETION = "_BLOCKHOUSE_COMPLETE"
_OWN_NAME = re.compile(r"^`blockhouse [a-z ]+`: ")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.

    Other exit codes are a command's own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    logging.getLogger().addHandler(logging.NullHandler())  # clients' chatter; commands that run on configure their own
    try:
        build_app(given)(args=given, prog_name="blockhouse")
    except BlockhouseError as error:
        _fail(error)
    except ModuleNotFoundError as error:  # of a command that loads its clients when it runs
        entry = next((entry for entry in entry_points(group=GROUP) if entry.name == _asked(given)), None)
        if entry is None:
            raise
        _fail(_unloaded(entry, error))
    except KeyboardInterrupt:  # while the command is being loaded: afterwards Typer makes this of it
        sys.exit(130)


def _fail(error: BlockhouseError) -> NoReturn:
    typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
    sys.exit(getattr(error, "exit_code", 1))


def _asked(arguments: Sequence[str]) -> str | None:
    """The command's name, if there is one among the arguments."""
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application, in which only the command that `arguments` ask for is loaded.

    Raises BlockhouseError when that command is installed but cannot be loaded, or needs a checkout of the source.
    """
    asked = _asked(arguments)
    found = [(entry, _source(entry.module)) for group in (GROUP, CHECKOUT_GROUP) for entry in entry_points(group=group)]
    missing = sorted(entry.name for entry, source in found if source is None and entry.group == CHECKOUT_GROUP)
    if asked in missing:
        raise BlockhouseError(f"command {asked!r} is not part of an installed package: {_CHECKOUT}")
    app = typer.Typer(
        help="Exactly-once loading of Kafka into ClickHouse.",
        epilog=f"Not installed here: {', '.join(missing)}; {_CHECKOUT}." if missing else None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for entry, source in sorted(found, key=lambda each: each[0].name):
        if source is None:
            continue
        if entry.name == asked or _COMPLETION in os.environ:
            _add(app, entry)
        else:
            app.command(entry.name, help=_summary(source))(_not_loaded)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"blockhouse {version('blockhouse')}")
        raise typer.Exit


def _options(
    _version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def _not_loaded() -> None:
    """Stands in the list of commands for one that was not asked for."""


def _add(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        loaded = entry.load()
    except Exception as error:  # whatever an import may raise, the user has to learn which command is broken
        raise _unloaded(entry, error) from error
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=entry.name)
    else:
        app.command(entry.name)(loaded)


def _unloaded(entry: EntryPoint, error: Exception) -> BlockhouseError:
    if isinstance(error, ModuleNotFoundError) and entry.extras and not (error.name or "").startswith("blockhouse"):
        return BlockhouseError(
            f"command {entry.name!r} needs the package {error.name!r}, which is not installed: "
            + how_to_install(",".join(entry.extras))
        )
    return BlockhouseError(
        f"command {entry.name!r} cannot be loaded from {entry.value}: {type(error).__name__}: {error}"
    )


def _source(module: str) -> Path | None:
    """The file of a module, found without importing it or its parents; None when its package is not installed."""
    top, *parts = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return None
    for location in spec.submodule_search_locations:
        path = Path(location, *parts)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def _summary(source: Path) -> str:
    try:
        documentation = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    except SyntaxError:
        return "(broken: cannot be parsed)"
    summary = _OWN_NAME.sub("", (documentation or "").split("\n", 1)[0])
    return summary[:1].upper() + summary[1:]
