"""Models and their inputs, as the commands take them: options, loading or compiling, files and random data."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tcomp.cli.console import progress
from tcomp.errors import Error

if TYPE_CHECKING:
    import numpy as np

    from tcomp.ir.artifact import Artifact, Port

Size = int | tuple[int, int] | None  # fixed; promised to lie in a range, or open: one program for all sizes
Command = Callable[..., Any]
RANDOM = "random"  # the source of an input that has no file
PRECISIONS = ("f32",)  # that there is code for

_BOUNDS = re.compile(r"(\d+)\.\.(\d+)\Z")
_SYMBOL = re.compile(r"[^\W\d]\w*\Z")


def parse_dims(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Size]:
    """`NAME=8`, `NAME=1..64` and `NAME=?` as sizes by name."""
    sizes: dict[str, Size] = {}
    for text in texts:
        name, found, size = text.partition("=")
        bounds = _BOUNDS.match(size)
        if not (name and found) or not (size.isdigit() or size == "?" or bounds):
            raise click.BadParameter(f"`{text}` is not NAME=8, NAME=1..64 or NAME=?")
        if name in sizes:
            raise click.BadParameter(f"`{name}` is given twice")
        sizes[name] = (int(bounds[1]), int(bounds[2])) if bounds else None if size == "?" else int(size)
    return sizes


def parse_inputs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=FILE.npy` and `NAME=random` as sources by name."""
    sources: dict[str, str] = {}
    for text in texts:
        name, _, source = text.rpartition("=")
        if not name or not (source == RANDOM or source.endswith(".npy")):
            raise click.BadParameter(f"`{text}` is not NAME=FILE.npy or NAME=random")
        if name in sources:
            raise click.BadParameter(f"`{name}` is given twice")
        sources[name] = source
    return sources


def input_options(command: Command) -> Command:
    """The options of everything that runs a model."""
    command = click.option("--seed", default=0, show_default=True, help="Of random inputs.")(command)
    return click.option(
        "--input", "sources", multiple=True, metavar="NAME=FILE.npy|random", callback=parse_inputs,
        help="Where an input comes from; random if not given. Repeatable.",
    )(command)  # fmt: skip


def compile_options(command: Command) -> Command:
    """The options of everything that compiles a model."""
    options = (
        click.option("--target", default="cpu", show_default=True, help="cpu (this machine), cpu:x86-64-v3, cpu:aarch64, ..."),
        click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", callback=parse_dims,
                     help="A symbolic dimension: NAME=8 fixes it, NAME=1..64 promises a range, NAME=? leaves it open."),
        click.option("--precision", type=click.Choice(PRECISIONS), default="f32", show_default=True, help="Of products."),
        click.option("--threads", type=click.IntRange(1), help="Threads of a call. Default: all that the process may use."),
        click.option("--no-cache", is_flag=True, help="Neither read nor write the disk cache."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def open_artifact(
    path: str, target: str, dims: Mapping[str, Size], precision: str, threads: int | None, no_cache: bool
) -> Artifact:
    """The artifact in a file, or that of an ONNX model: for any target, not linked."""
    set_environment(threads, no_cache)
    from tcomp import api
    from tcomp.frontend.jit import Options
    from tcomp.runtime import artifact

    if path.endswith(".tcomp"):
        found = artifact.read(path)
        require_symbols(dims, found.widest.symbols)
        return found
    with progress(f"compiling {os.path.basename(path)}"):
        return api.artifact_of(path, (), dims, Options(target=target, precision=precision), not no_cache)


def open_model(path: str, target: str, dims: Mapping[str, Size], precision: str, threads: int | None, no_cache: bool) -> Any:
    """The executable of an artifact (loaded) or of an ONNX model (compiled)."""
    set_environment(threads, no_cache)
    import tcomp

    if path.endswith(".tcomp"):
        program = tcomp.load(path)
        require_symbols(dims, program.artifact.widest.symbols)
        return program
    with progress(f"compiling {os.path.basename(path)}"):
        return tcomp.compile(path, target=target, dims=dims, precision=precision, use_cache=not no_cache)


def set_environment(threads: int | None, no_cache: bool) -> None:
    """What the options say about this process, where the rest of tcomp reads it."""
    if threads is not None:
        os.environ["TCOMP_NUM_THREADS"] = str(threads)
    if no_cache:
        os.environ["TCOMP_CACHE"] = "0"


def require_symbols(dims: Mapping[str, Size], symbols: Iterable[str]) -> None:
    """TC0801 where `--dim` names something that is not a symbolic dimension of the program."""
    known = sorted(symbols)
    expected = f"one of {', '.join(known)}" if known else "none: the program's sizes are fixed"
    for name in dims:
        if name not in known:
            raise Error("TC0801", f"--dim {name}: there is no such dimension", expected)


def make_inputs(
    ports: tuple[Port, ...], sources: Mapping[str, str], dims: Mapping[str, Size], seed: int, defaults: frozenset[str]
) -> dict[str, Any]:
    """An array for every port (a list of two for a sequence): from its file, else random. Ports in `defaults` have a value of
    their own and are left out."""
    import numpy as np

    unknown = sorted(set(sources) - {p.name for p in ports})
    if unknown:
        raise Error("TC0603", f"the model has no input {', '.join(unknown)}", f"one of {', '.join(p.name for p in ports)}")
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for port in ports:
        source = sources.get(port.name)
        if source is None and port.name in defaults:
            continue
        arrays[port.name] = random_value(port, dims, rng) if source is None or source == RANDOM else read_array(source)
    return arrays


def read_array(path: str) -> np.ndarray:
    """The array in a .npy file; TC0801 where there is none (pickled objects are refused)."""
    import numpy as np

    try:
        array: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Error("TC0801", f"{path}: {error}", "a .npy file of plain numbers") from None
    return array


def random_value(port: Port, dims: Mapping[str, Size], rng: np.random.Generator) -> Any:
    """A random array; for a sequence two of them, whose sizes are 2 where nothing tells them."""
    kind, _, element = port.dtype.partition(" of ")
    if not element:
        return random_array(port, dims, rng)
    shape = tuple(2 if d in ("?", "...") else d for d in port.shape)
    tensors = [random_array(replace(port, dtype=element, shape=shape), dims, rng) for _ in range(2)]
    return tensors if "sequence" in kind else tensors[0]


def tensors_of(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors by name: those of a list as `name[k]`, of a list of maps what a key has in all of them as `name[key]`, none of an
    optional that is not there."""
    import numpy as np

    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            found |= {f"{name}[{key}]": np.array([row[key] for row in value]) for key in value[0]}
        elif isinstance(value, list):
            found |= {f"{name}[{k}]": x for k, x in enumerate(value)}
        elif value is not None:
            found[name] = value
    return found


def random_array(port: Port, dims: Mapping[str, Size], rng: np.random.Generator) -> np.ndarray:
    """Standard normal floats; integers and booleans 0 or 1, which are valid indices and masks nearly everywhere."""
    from tcomp.ir.dtype import ALL, to_numpy

    dtype = ALL[port.dtype]
    shape = tuple(size_of(d, dims, port) for d in port.shape)
    drawn = rng.standard_normal(shape) if dtype.is_float else rng.integers(0, 2, shape)
    return drawn.astype(to_numpy(dtype))


def size_of(dimension: int | str, dims: Mapping[str, Size], port: Port) -> int:
    """The size of a random input's dimension: as `--dim` says, else the smallest it may be, but 1 at least."""
    if isinstance(dimension, int):
        return dimension
    if not _SYMBOL.match(dimension):
        hint = f"give --input {port.name}=FILE.npy"
        raise Error("TC0801", f"the size `{dimension}` of a random input {port.name} is not known", hint=hint)
    size = dims.get(dimension)
    return max(1, size[0]) if isinstance(size, tuple) else 1 if size is None else size
