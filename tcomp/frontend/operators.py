"""Operators, methods and properties of traced arrays, from tables: each calls the function of `tcomp.numpy` it is named for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tcomp.frontend.places import fault
from tcomp.frontend.registry import FUNCTIONS

if TYPE_CHECKING:
    from tcomp.frontend.tracer import Traced

BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "operator_power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISON = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
METHODS = (
    *("sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmin", "argmax", "cumsum", "cumprod", "ptp"),
    *("clip", "round", "dot", "take", "repeat", "squeeze", "swapaxes", "ravel", "diagonal", "trace", "conj", "argsort"),
    *("searchsorted", "astype", "copy"),
)
REFUSED = {
    "item": "TC0101",
    "tolist": "TC0101",
    "tobytes": "TC0101",
    "sort": "TC0105",
    "fill": "TC0105",
    "put": "TC0105",
    "resize": "TC0105",
    "itemset": "TC0105",
    "partition": "TC0105",
    "nonzero": "TC0105",
}


class Operators:
    """What NumPy's arrays can do, by looking the functions up when they are called."""

    __slots__ = ()
    __array_priority__ = 1000
    if TYPE_CHECKING:  # what the tables below define

        def __add__(self, other: Any) -> Traced: ...
        def __radd__(self, other: Any) -> Traced: ...
        def __sub__(self, other: Any) -> Traced: ...
        def __rsub__(self, other: Any) -> Traced: ...
        def __mul__(self, other: Any) -> Traced: ...
        def __rmul__(self, other: Any) -> Traced: ...
        def __truediv__(self, other: Any) -> Traced: ...
        def __floordiv__(self, other: Any) -> Traced: ...
        def __mod__(self, other: Any) -> Traced: ...
        def __pow__(self, other: Any) -> Traced: ...
        def __matmul__(self, other: Any) -> Traced: ...
        def __and__(self, other: Any) -> Traced: ...
        def __or__(self, other: Any) -> Traced: ...
        def __eq__(self, other: object) -> Traced: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Traced: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Traced: ...
        def __le__(self, other: Any) -> Traced: ...
        def __gt__(self, other: Any) -> Traced: ...
        def __ge__(self, other: Any) -> Traced: ...

    def __getitem__(self, key: Any) -> Traced:
        return FUNCTIONS["getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        hint = "write `x = tcomp.numpy.where(mask, value, x)`, or put the parts together with concat"
        raise fault("TC0105", "assignment to elements of a traced array", "traced arrays, which never change", hint)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tcomp.frontend.protocols import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from tcomp.frontend.protocols import call_function

        return call_function(func, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self, "NumPy asked for the elements of", "tcomp.numpy.asarray takes traced arrays, np.stack joins them")

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from tcomp.frontend import numpy_api

        return numpy_api

    def __bool__(self) -> NoReturn:
        _refuse(self, "`bool()` of")

    def __int__(self) -> NoReturn:
        _refuse(self, "`int()` of")

    def __float__(self) -> NoReturn:
        _refuse(self, "`float()` of")

    def __complex__(self) -> NoReturn:
        _refuse(self, "`complex()` of")

    def __index__(self) -> NoReturn:
        _refuse(self, "an integer was asked of")

    def __contains__(self, value: Any) -> NoReturn:
        _refuse(self, "`in` asked for the elements of", "use tcomp.numpy.any(x == value)")

    def __len__(self) -> int:
        shape = self.shape  # type: ignore[attr-defined]
        if not shape:
            raise fault("TC0102", "`len()` of an array of rank 0", "at least one axis")
        if isinstance(shape[0], int):
            return shape[0]
        _refuse(self, "`len()` of", "use x.shape[0], which may be symbolic")

    def __iter__(self) -> Iterator[Any]:
        shape = self.shape  # type: ignore[attr-defined]
        if not shape or not isinstance(shape[0], int):
            _refuse(self, "iteration over")
        return (self[k] for k in range(shape[0]))

    @property
    def T(self) -> Any:
        return FUNCTIONS["transpose"](self)

    @property
    def mT(self) -> Any:
        return FUNCTIONS["matrix_transpose"](self)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return FUNCTIONS["zeros_like"](self)

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        return self

    def transpose(self, *axes: Any) -> Any:
        return FUNCTIONS["transpose"](self, _unpacked(axes) if axes else None)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return FUNCTIONS["reshape"](self, _unpacked(shape), **kwargs)

    def __round__(self, ndigits: int = 0) -> Any:
        return FUNCTIONS["round"](self, ndigits)

    def flatten(self) -> Any:
        return FUNCTIONS["ravel"](self)


def _unpacked(args: tuple[Any, ...]) -> Any:
    """`f(2, 3)` and `f((2, 3))` alike."""
    return args[0] if len(args) == 1 else args


def _refuse(x: Any, use: str, hint: str = "") -> NoReturn:
    from tcomp.frontend.tracer import refuse_value

    refuse_value(x, use, hint)


def _is_operand(x: object) -> bool:
    """Whether an operator takes `x`; of anything else Python asks the other operand."""
    return x is not None and not isinstance(x, (str, bytes, dict, set))


def _is_weak(x: Any) -> bool:
    return getattr(x, "weak", False) or (isinstance(x, (int, float)) and not isinstance(x, (bool, np.generic)))


def of_scalars(result: Any, *inputs: Any) -> Any:
    """What an operator gives on Python scalars alone is as weak as they are."""
    from tcomp.frontend.tracer import Traced

    if isinstance(result, Traced) and all(map(_is_weak, inputs)) and result.dtype.kind in "if":
        return Traced(result.node, weak=True)
    return result


def _binary(function: str, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        return of_scalars(FUNCTIONS[function](left, right), left, right)

    return method


def _in_place(function: str, symbol: str) -> Callable[..., Any]:
    """`x += y` names the new array x; as in NumPy it keeps the dtype and shape of x."""

    def method(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        result = FUNCTIONS[function](self, other)
        if self.weak:
            return of_scalars(result, self, other)
        if result.node.type.shape != self.node.type.shape:
            raise fault("TC0102", f"`{symbol}` of {self.node.type} by an array that makes it {result.node.type}", "its own shape")
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            found = f"`{symbol}` of {self.node.type}, whose result is {result.dtype.name}"
            raise fault("TC0103", found, f"a result that fits {self.dtype.name}", "write `x = x + y`, or cast with astype")
        return FUNCTIONS["astype"](result, self.dtype)

    return method


def _unary(function: str) -> Callable[..., Any]:
    return lambda self: of_scalars(FUNCTIONS[function](self), self)


def _method(function: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: FUNCTIONS[function](self, *args, **kwargs)


def _refused(name: str, code: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        if code == "TC0101":
            _refuse(self, f"`{name}()` of")
        raise fault(code, f"`{name}()` of a traced array", "a function that gives a new array of a size known while tracing")

    return method


def _named(name: str, method: Callable[..., Any]) -> None:
    method.__name__ = name
    setattr(Operators, name, method)


_SYMBOLS = {
    "add": "+=",
    "sub": "-=",
    "mul": "*=",
    "truediv": "/=",
    "floordiv": "//=",
    "mod": "%=",
    "pow": "**=",
    "matmul": "@=",
    "and": "&=",
    "or": "|=",
    "xor": "^=",
    "lshift": "<<=",
    "rshift": ">>=",
}
for _name, _function in BINARY.items():
    _named(f"__{_name}__", _binary(_function))
    _named(f"__r{_name}__", _binary(_function, swapped=True))
for _name, _symbol in _SYMBOLS.items():
    _named(f"__i{_name}__", _in_place(BINARY[_name], _symbol))
for _name, _function in COMPARISON.items():
    _named(f"__{_name}__", _binary(_function))
for _name, _function in UNARY.items():
    _named(f"__{_name}__", _unary(_function))
for _name in METHODS:
    _named(_name, _method(_name))
for _name, _code in REFUSED.items():
    _named(_name, _refused(_name, _code))
