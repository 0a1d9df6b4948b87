"""`jit`: a Python function on arrays becomes a compiled one, traced and compiled when it meets arguments of a new signature.

The compiler is injected (`set_compiler`): this package knows nothing of passes, code or the runtime.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Protocol

from tcomp import forks
from tcomp.errors import Error
from tcomp.frontend import pytree
from tcomp.frontend.places import placed, user_traceback
from tcomp.frontend.program import Abstract, Program, signature_of, trace_flat
from tcomp.frontend.pytree import LEAF, Tree
from tcomp.frontend.signature import Call, Shapes, fits, generalised, taken_apart
from tcomp.frontend.tracer import active
from tcomp.ir.graph import Func

RECENT = 8  # programs whose fast paths are tried in turn before the signature is looked up
SPECIALISED = 4  # signatures that differ in shapes only and get a program of their own; then one symbolic program serves


@dataclass(frozen=True, slots=True)
class Options:
    """What to compile for. note: why this program is as it is, for the report."""

    target: str = "cpu"
    device: str | None = None
    precision: str | None = None
    fp: str | None = None
    tune: bool | int = False
    note: str = ""


class Executable(Protocol):
    """A compiled function of flat arrays. With one result it gives the array, else a tuple."""

    @property
    def call_flat(self) -> Callable[..., Any]:
        """The shortest way: the results, or NotImplemented for arrays that are not what the code was made for, or a fault."""

    def __call__(self, *arrays: Any) -> Any:
        """The results for any arrays that fit (strided, of another library); raises `Error` where they do not."""


class LoweredFunc(Protocol):
    """A function on its way down: its text at each stage, and what it compiles to."""

    def text(self, stage: str) -> str: ...

    def compile(self) -> Executable: ...


class Compiler(Protocol):
    """What the driver injects."""

    def __call__(self, func: Func, options: Options) -> Executable: ...

    def lower_func(self, func: Func, options: Options) -> LoweredFunc: ...


_compiler: Compiler | None = None


def set_compiler(compiler: Compiler | None) -> None:
    """Make `compiler` the one that all jitted functions without their own use."""
    global _compiler
    _compiler = compiler


def _current(own: Compiler | None) -> Compiler:
    found = own or _compiler
    if found is None:
        raise Error("TC0001", "no compiler is set", "`import tcomp`, which sets one")
    return found


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program that serves one signature, or all that fit its shapes."""

    executable: Executable
    output: Tree
    shapes: Shapes

    def call(self, arrays: list[Any]) -> Any:
        return self.packed(self.executable(*arrays))

    def packed(self, result: Any) -> Any:
        """What the executable gave, as the function's nest of results."""
        if self.output is LEAF:
            return result
        return pytree.unflatten(self.output, iter((result,) if self.output.leaves == 1 else result))

    @functools.cached_property
    def fast(self) -> Callable[..., Any]:
        """The shortest way to the results for flat arrays; NotImplemented where the executable's fast path says so."""
        call = self.executable.call_flat
        flat = self.output.kind is tuple and all(c is LEAF for c in self.output.children) and self.output.leaves != 1
        if self.output is LEAF or flat:
            return call

        def unpacked(*arrays: Any) -> Any:
            result = call(*arrays)
            return result if result is NotImplemented else self.packed(result)

        return unpacked


@dataclass(slots=True)
class Family:
    """The signatures that differ in shapes only, and their programs."""

    seen: list[Shapes] = field(default_factory=list)
    exact: dict[Shapes, Compiled] = field(default_factory=dict)
    symbolic: list[Compiled] = field(default_factory=list)
    refused: str = ""  # why there is no symbolic program


@dataclass(frozen=True, slots=True)
class Lowered:
    """A traced function. `program` has its GRAPH and trees; `text` gives any stage; `compile` its executable."""

    program: Program
    lowered: LoweredFunc

    def text(self, stage: str = "graph") -> str:
        return self.lowered.text(stage)

    def compile(self) -> Executable:
        return self.lowered.compile()


def _nothing_yet(*arrays: Any) -> Any:
    return NotImplemented


class Jit:
    """A jitted function: call it like the function it wraps. Thread-safe; inside another trace it is inlined."""

    def __init__(
        self,
        fn: Callable[..., Any],
        options: Options,
        static_argnames: Iterable[str] = (),
        dynamic: Mapping[str, Any] | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        if not callable(fn):
            raise Error("TC0105", f"jit of an object of type {type(fn).__name__}", "a function of arrays")
        if not isinstance(dynamic, Mapping | None):
            raise Error("TC0105", f"dynamic={dynamic!r}", 'sizes by parameter: `{"x": "f32[n, 768]"}` or `{"x": {0: "n"}}`')
        functools.update_wrapper(self, fn)
        self.fn, self.options, self.compiler = fn, options, compiler
        self.dynamic = dict(dynamic or {})
        self.signature = signature_of(fn)
        self.static = frozenset([static_argnames] if isinstance(static_argnames, str) else static_argnames)
        self._families: dict[Any, Family] = {}
        self._lock = threading.RLock()
        self._fast: Callable[..., Any] = _nothing_yet
        self._recent: tuple[Callable[..., Any], ...] = ()
        unknown = self.static - set(self.signature.parameters)
        if unknown:
            expected = f"parameters of {self._name}: {', '.join(self.signature.parameters)}"
            raise Error("TC0105", f"static_argnames of {', '.join(sorted(unknown))}", expected)

    @property
    def _name(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            result = self._fast(*args)
            if result is not NotImplemented:
                return result
        if active() is not None:
            return self.fn(*args, **kwargs)
        try:
            return self._dispatch(args, kwargs)
        except Exception as e:
            raise _shortened(e) from None

    def at_hand(self, *args: Any) -> Any:
        """The results by the fast path of a program used lately, or NotImplemented."""
        for call in self._recent:
            result = call(*args)
            if result is not NotImplemented:
                self._fast = call
                return result
        return NotImplemented

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A jitted method: one jitted function for each instance (or class, of a class method), kept in it."""
        if instance is None:
            return self
        methods = _methods_of(instance)
        kept = methods.get(self)
        if kept is None:
            bound = self.fn.__get__(instance, owner)
            kept = methods[self] = Jit(bound, self.options, self.static, self.dynamic, self.compiler)
        return kept

    def __repr__(self) -> str:
        return f"<tcomp.jit of {self._name}>"

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The function traced for these arguments, which may be specs, on its way down."""
        try:
            call = self._taken_apart(args, kwargs)
            with forks.whole():
                program = self._traced(call, call.described)
                return Lowered(program, _current(self.compiler).lower_func(program.func, self.options))
        except Exception as e:
            raise _shortened(e) from None

    def programs(self) -> list[str]:
        """One line for each compiled program: its argument shapes, and why it is symbolic or not."""
        lines = []
        for family in self._families.values():
            exact = enumerate(family.exact.values(), 1)
            lines += [f"{_show(c.shapes)}: specialised{_counted(k)}" for k, c in exact]
            lines += [f"{_show(c.shapes)}: symbolic" for c in family.symbolic]
            lines += [f"specialised for every shape: {family.refused}"] if family.refused else []
        return lines

    def _taken_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{self._name}: {e}") from None
        return taken_apart(bound, self.static, self.dynamic)

    def _dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not kwargs and (result := self.at_hand(*args)) is not NotImplemented:
            return result
        try:
            call = self._taken_apart(args, kwargs)
            with forks.whole():
                program = self._found(call) or self._made(call)
                if not kwargs and self._is_flat(args, call):
                    self._keep(program.fast)
        except Error as e:
            raise placed(e) from None
        return program.call(call.arrays())

    def _keep(self, fast: Callable[..., Any]) -> None:
        """Try this program first from now on."""
        self._fast = fast
        self._recent = (fast, *(c for c in self._recent if c is not fast))[:RECENT]

    def _is_flat(self, args: tuple[Any, ...], call: Call) -> bool:
        """Whether the positional arguments are the executable's arrays, one for one."""
        arrays = all(a is not None and not a.weak for a in call.described)
        return arrays and not call.statics and len(args) == len(call.leaves) and all(map(_same, args, call.leaves))

    def _found(self, call: Call) -> Compiled | None:
        family = self._families.get(call.key)
        if family is None:
            return None
        return family.exact.get(call.shapes) or next((c for c in family.symbolic if fits(c.shapes, call.shapes)), None)

    def _made(self, call: Call) -> Compiled:
        """Compile for a new signature: for its shapes alone, or from the fifth on with symbols for what varied."""
        with self._lock:
            found = self._found(call)
            if found is not None:
                return found
            family = self._families.setdefault(call.key, Family())
            made = self._symbolic(call, family) if len(family.seen) >= SPECIALISED and not family.refused else None
            if made is None:
                made = self._compiled(call, call.described, call.shapes, family.refused)
                family.exact[call.shapes] = made
            family.seen.append(call.shapes)
            return made

    def _symbolic(self, call: Call, family: Family) -> Compiled | None:
        """One program for all shapes seen and this one; None, and the reason kept, where the function depends on them."""
        pattern = generalised([*family.seen, call.shapes])
        shapes = iter(pattern)
        described = tuple(None if a is None else Abstract(a.dtype, next(shapes), a.weak) for a in call.described)
        note = f"symbolic: {len(family.seen) + 1} signatures were met"
        try:
            made = self._compiled(call, described, pattern, note)
        except Error as e:
            family.refused = f"with symbolic sizes, {e.code}: {e.found}"
            return None
        family.symbolic.append(made)
        return made

    def _compiled(self, call: Call, described: tuple[Abstract | None, ...], shapes: Shapes, note: str) -> Compiled:
        program = self._traced(call, described)
        options = self.options if not note else Options(**{**_fields(self.options), "note": note})
        executable = _current(self.compiler)(program.func, options)
        return Compiled(executable, program.output, shapes)

    def _traced(self, call: Call, described: tuple[Abstract | None, ...]) -> Program:
        def run(arguments: dict[str, Any]) -> Any:
            bound = inspect.BoundArguments(self.signature, {})
            given = arguments | dict(call.statics)
            bound.arguments = {k: given[k] for k in self.signature.parameters if k in given}
            return self.fn(*bound.args, **bound.kwargs)

        return trace_flat(run, self._name, call.tree, described, call.leaves)


class Methods(dict[Jit, Jit]):
    """The jitted methods of an object, by what the class defines. Copies of the object, pickled ones too, start without."""

    def __init__(self, owner: Any = None) -> None:
        super().__init__()
        self.owner = owner

    def __reduce__(self) -> Any:
        return Methods, ()


_METHODS = "_tcomp_methods"


def _methods_of(instance: Any) -> Methods:
    """The jitted methods kept in an object. TC0105 where it has no place for them."""
    kept = getattr(instance, "__dict__", {}).get(_METHODS)
    if isinstance(kept, Methods) and kept.owner is instance:
        return kept
    kept = Methods(instance)
    try:
        (type if isinstance(instance, type) else object).__setattr__(instance, _METHODS, kept)
    except (AttributeError, TypeError):
        hint = "give its class a `__dict__`, or jit a function that takes what the method reads"
        raise Error("TC0105", f"a jitted method of a {type(instance).__name__}", "an object with attributes", hint=hint) from None
    return kept


def _fields(options: Options) -> dict[str, Any]:
    return {k: getattr(options, k) for k in Options.__slots__}


def _same(a: Any, b: Any) -> bool:
    return a is b


def _counted(k: int) -> str:
    """Which of the signatures that get a program of their own the kth program is for."""
    return f", signature {k} of {SPECIALISED}" if k <= SPECIALISED else ""


def _show(shapes: Shapes) -> str:
    from tcomp.ir.ops.table import show_shape

    return ", ".join(map(show_shape, shapes)) or "no arrays"


def _shortened(e: Exception) -> Exception:
    """`e` without tcomp's frames where tcomp on purpose or the user's code raised it; a fault of tcomp keeps them all."""
    short = user_traceback(e.__traceback__)
    if isinstance(e, Error) or _innermost(short) is _innermost(e.__traceback__):
        return e.with_traceback(short)
    return e


def _innermost(traceback: TracebackType | None) -> FrameType | None:
    """The frame that raised."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    static_argnames: Iterable[str] = (),
    dynamic: Mapping[str, Any] | None = None,
    target: str = "cpu",
    device: str | None = None,
    precision: str | None = None,
    fp: str | None = None,
    tune: bool | int = False,
) -> Any:
    """Compile a NumPy-style function of arrays, when it is called.

    static_argnames: parameters whose values are compiled in. dynamic: sizes that vary, by parameter: `{"x": {0: "n"}}` or
    `{"x": "f32[n, 768]"}`; other sizes are compiled in for the first four signatures, then become symbolic too.
    target: `cpu`, or a named one such as `cpu:x86-64-v3`. precision: of products, `f32` so far. fp: `bitwise` keeps the order of
    the text, where by default sums and products may be rewritten. device and tune: nothing yet.
    Works as a decorator with or without options, and on methods. Beside the call there are `lower(...)`, for the text of every
    stage and an executable, and `programs()`, which says what was compiled for which sizes.
    """
    options = Options(target, device, precision, fp, tune)
    if fn is None:
        return lambda f: Jit(f, options, static_argnames, dynamic)
    return Jit(fn, options, static_argnames, dynamic)
