"""`tcomp opt`: passes on the text of a dump. What `TCOMP_DUMP` wrote can be taken up again at any stage."""

from __future__ import annotations

from pathlib import Path

import click

from tcomp.cli.console import cannot_write
from tcomp.errors import Error

_EPILOG = """\b
Examples:
  tcomp opt 03-lower.tc --passes place,expand        print what the two passes make of it
  tcomp opt 03-lower.tc --passes place -o placed.tc
  tcomp opt model.tc                                 parse, verify and print
  tcomp opt --list                                   name the passes"""


@click.command("opt", epilog=_EPILOG, short_help="Run passes on the text of a module.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--passes", default="", metavar="a,b,c", help="Passes to run, in order.")
@click.option("-o", "--output", metavar="OUT.tc", help="Where to write; large constants go beside it. Default: standard output.")
@click.option("--list", "listing", is_flag=True, help="Name the passes and their order, and stop.")
def opt(file: str | None, passes: str, output: str | None, listing: bool) -> None:
    """Run passes on FILE.tc, the text of a module at any stage, and print the result."""
    from tcomp import driver

    if listing:
        for name, function in driver.PASSES.items():
            click.echo(f"{name:20}{first_line(function)}")
        click.echo(f"\npipeline: {','.join(driver.PIPELINE)}")
        return
    if file is None:
        raise click.UsageError("give a FILE.tc, or --list")
    names = [n.strip() for n in passes.split(",") if n.strip()]
    unknown = [n for n in names if n not in driver.PASSES]
    if unknown:
        raise Error("TC0801", f"there is no pass `{unknown[0]}`", f"one of {', '.join(driver.PASSES)}")
    transform(file, names, output)


def transform(file: str, names: list[str], output: str | None) -> None:
    """Read, run the passes, write."""
    from tcomp import driver
    from tcomp.ir.dump import load_dump, save_dump
    from tcomp.ir.printer import print_module
    from tcomp.ir.verify import verify

    try:
        module = load_dump(Path(file))
    except UnicodeDecodeError:
        raise Error("TC0301", f"{file} is not text", "a dump, as TCOMP_DUMP writes it") from None
    verify(module)
    result = driver.run_passes(module, tuple(names))
    if output is None:
        click.echo(print_module(result), nl=False)
        return
    try:
        save_dump(result, Path(output))
    except OSError as error:
        raise cannot_write(output, error) from None


def first_line(function: object) -> str:
    """The first line of a docstring; of a partial, that of its function."""
    return (getattr(function, "func", function).__doc__ or "").strip().partition("\n")[0]
