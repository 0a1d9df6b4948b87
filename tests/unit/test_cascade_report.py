"""Which of a function's cascades become kernels beside one another, and what it costs to find out."""

import numpy as np
import pytest

import tcomp
from tcomp.driver import stages_of
from tcomp.frontend.jit import Options
from tcomp.ir.graph import Func
from tcomp.schedule.lower.cascade_report import _meets, _Relations


@pytest.mark.parametrize("reads", [(0b010, 0b001, 0), (0b010, 0b100, 0b001)])
def test_cascades_that_would_wait_for_one_another(reads):
    relations = _Relations((0,) * 3, reads)
    last = max(k for k in range(3) if reads[k])
    assert "reads what it gives" in _meets(relations, last, range(last))
    assert not _meets(relations, last, range(last - 1))


def test_cascades_that_share_a_node():
    relations = _Relations((0b10, 0b01), (0, 0))
    assert "a larger chain" in _meets(relations, 1, [0]) and not _meets(relations, 1, [])


def walks(layers: int, monkeypatch) -> int:
    """How often the nodes of the function are walked until so many layers of a product and a softmax are lowered."""

    def f(x, w):
        for _ in range(layers):
            x = x @ w
            e = np.exp(x - np.max(x, axis=1, keepdims=True))
            x = e / np.sum(e, axis=1, keepdims=True)
        return x

    func = tcomp.jit(f).lower(tcomp.spec("f32[n, 8]"), tcomp.spec("f32[8, 8]")).program.func
    count, nodes = [0], Func.nodes

    def counted(self):
        count[0] += 1
        return nodes(self)

    with monkeypatch.context() as m:
        m.setattr(Func, "nodes", counted)
        stages_of(func, Options())
    return count[0]


def test_work_grows_with_the_layers(monkeypatch):
    few, many = walks(8, monkeypatch), walks(32, monkeypatch)
    assert many <= 5 * few, f"{few} walks of 8 layers, {many} of 32"
