"""Random models of loops and branches in one another, of vectors whose length depends on what they hold, against onnxruntime."""

import random

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import model, value

import tcomp

VECTOR = ("?",)


class Growing:
    """A model in the making: every value is a vector of floats."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = 0

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def node(self, op, inputs, count=1, **attributes):
        outputs = [self.name() for _ in range(count)]
        return h.make_node(op, inputs, outputs, **attributes), outputs

    def block(self, values, depth):
        """Nodes on these vectors, and two vectors that they make."""
        nodes, known = [], list(values)
        for _ in range(self.rng.randint(1, 3)):
            kinds = ["join", "positive", "rest", "neg", "norm"] + (["if", "loop", "while"] if depth < 2 else [])
            new, found = getattr(self, self.rng.choice(kinds) + "_")(known, depth)
            nodes += new
            known.append(found)
        made = [known[-1], self.rng.choice(known)]
        ends = [self.node("Identity", [v]) for v in made]
        return [*nodes, *(n for n, _ in ends)], [o[0] for _, o in ends]

    def join_(self, known, depth):
        """Two vectors side by side, the first 40 elements."""
        n, (long,) = self.node("Concat", [self.rng.choice(known), self.rng.choice(known)], axis=0)
        m, (short,) = self.node("Slice", [long, "zero1", "forty"])
        return [n, m], short

    def positive_(self, known, depth):
        x = self.rng.choice(known)
        n, (flags,) = self.node("Greater", [x, "zero"])
        m, (kept,) = self.node("Compress", [x, flags], axis=0)
        return [n, m], kept

    def rest_(self, known, depth):
        n, (rest,) = self.node("Slice", [self.rng.choice(known), "one1", "forty"])
        return [n], rest

    def neg_(self, known, depth):
        n, (y,) = self.node("Neg", [self.rng.choice(known)])
        return [n], y

    def norm_(self, known, depth):
        """Less the mean, which is 0 of no elements."""
        x = self.rng.choice(known)
        n, (total,) = self.node("ReduceSum", [x], keepdims=1)
        m, (part,) = self.node("Mul", [total, "tenth"])
        k, (y,) = self.node("Sub", [x, part])
        return [n, m, k], y

    def flag(self, x):
        n, (total,) = self.node("ReduceSum", [x], keepdims=0)
        m, (flag,) = self.node("Less", [total, "half"])
        return [n, m], flag

    def if_(self, known, depth):
        nodes, flag = self.flag(self.rng.choice(known))
        sides = []
        for _ in range(2):
            inner, made = self.block(known, depth + 1)
            sides.append(h.make_graph(inner, self.name(), [], [value(o, VECTOR) for o in made]))
        n, found = self.node("If", [flag], 2, then_branch=sides[0], else_branch=sides[1])
        return [*nodes, n], found[0]

    def loop_(self, known, depth, ends=False):
        """Up to three turns, or as many as there are elements up to three; two vectors are carried."""
        outer = [self.rng.choice(known) for _ in range(2)]
        inside = [self.name() for _ in range(2)]
        i, c = self.name(), self.name()
        nodes, made = self.block([*known, *inside], depth + 1)
        if ends:
            more, going = self.flag(made[0])
        else:
            n, (going,) = self.node("Identity", [c])
            more = [n]
        inputs = [value(i, (), T.INT64), value(c, (), T.BOOL), *(value(v, VECTOR) for v in inside)]
        outputs = [value(going, (), T.BOOL), *(value(v, VECTOR) for v in made)]
        body = h.make_graph([*nodes, *more], self.name(), inputs, outputs)
        count, before = "three", []
        if self.rng.random() < 0.5:
            n, (size,) = self.node("Size", [self.rng.choice(known)])
            m, (count,) = self.node("Min", [size, "three"])
            before = [n, m]
        n, found = self.node("Loop", [count, "", *outer], 2, body=body)
        return [*before, n], self.rng.choice(found)

    def while_(self, known, depth):
        return self.loop_(known, depth, True)

    def model(self):
        nodes, made = self.block(["x", "y"], 0)
        more, last = self.loop_(["x", *made], 0)
        constants = {"zero": np.float32(0), "half": np.float32(0.5), "tenth": np.float32(0.1), "three": np.array(3),
                     "zero1": np.array([0]), "one1": np.array([1]), "forty": np.array([40])}  # fmt: skip
        inputs = [value("x", ("n",)), value("y", ("m",))]
        return model([*nodes, *more], inputs, [value(v, VECTOR) for v in (*made, last)], constants)


@pytest.mark.parametrize("seed", [*range(10), 138])
def test_random_models(seed):
    m = Growing(seed).model()
    session, exe = onnxruntime.InferenceSession(m.SerializeToString()), tcomp.compile(m)
    rng = np.random.default_rng(seed)
    for n, k in ((3, 4), (0, 2), (1, 0), (9, 7)):
        feed = {"x": rng.standard_normal(n).astype(np.float32), "y": rng.standard_normal(k).astype(np.float32)}
        for got, want in zip(exe.run(feed).values(), session.run(None, feed)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
