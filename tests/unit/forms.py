"""Kernels in their three forms: `agree` runs TILE, PLACED and REG on random arrays, and checks the rules of each stage."""

import numpy as np

from tcomp.ir import index as ix
from tcomp.ir.dtype import to_numpy
from tcomp.ir.interp.tile import run_kernel
from tcomp.ir.spec import SPECS
from tcomp.ir.stmts import For, If
from tcomp.ir.verify_kernel import kernel_faults
from tcomp.passes.expand import expand_kernel
from tcomp.passes.place import place_kernel


def agree(kernel, sizes=None, inputs=None, places=True, exact=False, seed=0):
    """The outputs of REG, after all forms of a kernel were found to mean the same at each of these sizes."""
    placed = place_kernel(kernel) if places else kernel
    reg = expand_kernel(placed)
    for form, stage in ((placed, "placed"), (reg, "reg")):
        faults = [why for _, why in kernel_faults(form, SPECS[stage])]
        assert not faults, f"{kernel.name} at stage {stage}: {faults}"
    for values in sizes or [{}]:
        arrays = random_inputs(kernel, values, seed) if inputs is None else inputs
        want, *found = (run(k, values, arrays) for k in (kernel, placed, reg))
        for form, outputs in zip(("placed", "reg"), found):
            for b, x, y in zip(kernel.outputs, want, outputs):
                close = same(x, y) if exact else np.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True)
                assert close, f"{kernel.name} {values}: {b.name} differs in the {form} form"
    return outputs


def same(x, y):
    """Bit for bit, but for which NaN it is."""
    if x.dtype.kind == "f":
        return np.array_equal(x, y, equal_nan=True) and np.array_equal(np.signbit(x) | np.isnan(x), np.signbit(y) | np.isnan(y))
    return np.array_equal(x, y)


def random_inputs(kernel, values, seed=0):
    """Arrays for the inputs of a kernel."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(ix.evaluate(d, values) for d in b.shape) for b in kernel.inputs]
    draw = {"f": rng.standard_normal, "i": lambda s: rng.integers(-9, 9, s), "u": lambda s: rng.integers(0, 9, s)}
    return [
        draw["f" if b.dtype.is_float else to_numpy(b.dtype).kind](s).astype(to_numpy(b.dtype))
        for b, s in zip(kernel.inputs, shapes)
    ]


def run(kernel, values, inputs):
    buffers = {b.name: a for b, a in zip(kernel.inputs, inputs)}
    for b in kernel.outputs:
        buffers[b.name] = np.full([ix.evaluate(d, values) for d in b.shape], 7, to_numpy(b.dtype))
    run_kernel(kernel, buffers, values)
    return [buffers[b.name] for b in kernel.outputs]


def statements(body):
    """All statements of a body, outer before inner."""
    for st in body:
        yield st
        if isinstance(st, For | If):
            yield from statements(st.body)
        if isinstance(st, If):
            yield from statements(st.orelse)


def all_statements(kernel):
    return [st for grid in kernel.phases for st in statements(grid.body)]
