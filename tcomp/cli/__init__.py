"""The command line: `tcomp COMMAND ...`, each command in a file of its name. Modules that are slow to import are imported
by the commands that need them, so that `--help` is instant.

Exit codes: 0 done; 1 the input was at fault (one message); 2 usage; 70 a fault of tcomp, with a reproducer written and named.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import click

from tcomp import knobs
from tcomp.cli.bench import bench
from tcomp.cli.compile import compile_command
from tcomp.cli.doctor import doctor
from tcomp.cli.explain import explain
from tcomp.cli.faults import as_fault, write_reproducer
from tcomp.cli.opt import opt
from tcomp.cli.run import run
from tcomp.errors import Error

DONE, INPUT_FAULT, USAGE, OWN_FAULT, INTERRUPTED = 0, 1, 2, 70, 130

_EPILOG = """\b
Examples:
  tcomp compile model.onnx -o model.tcomp     compile once
  tcomp run model.tcomp                       run it on random inputs
  tcomp bench model.onnx                      how fast, beside onnxruntime
  tcomp explain model.onnx                    what became of every operation

Exit codes: 0 done, 1 the input was at fault, 2 usage, 70 a fault of tcomp itself."""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tcomp")
def cli() -> None:
    """tcomp compiles tensor programs (ONNX models, NumPy-style functions) into native code; every step is readable text."""


for _command in (compile_command, run, bench, explain, opt, doctor):
    cli.add_command(_command)


def main() -> None:
    """The console script: runs the command and exits with its code."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run one command line; what went wrong is printed. Returns the exit code."""
    debug = False
    try:
        debug = knobs.DEBUG.read()
        result = cli.main(arguments, prog_name="tcomp", standalone_mode=False)
        return result if isinstance(result, int) else DONE
    except click.ClickException as error:
        error.show()
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say, at exit neither
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Error as error:
        return _report(error, arguments, debug)
    except Exception as error:
        return _report(as_fault(error), arguments, debug)


def _report(error: Error, arguments: list[str], debug: bool) -> int:
    """Print the message, for a fault of tcomp where its reproducer is, and the frames if `debug`. Returns the exit code."""
    own = error.code == "TC0001"
    message = error.render()
    if own:
        message += f"\n  reproducer: {write_reproducer(error, arguments)}"
    click.echo(message, err=True)
    if "--json" in arguments:
        click.echo(json.dumps({"error": {"code": error.code, "message": message}}))
    if debug:
        traceback.print_exception(error)
    return OWN_FAULT if own else INPUT_FAULT
