"""TfIdfVectorizer on integers against onnxruntime, for sequences of all lengths."""

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from test_control_operators import compare, model, value

import tcomp

RNG = np.random.default_rng(19)
POOL = {
    "ngram_counts": [0, 2, 8],
    "ngram_indexes": [4, 0, 1, 3, 2, 6, 5],
    "pool_int64s": [5, 6, 5, 6, 6, 6, 7, 5, 5, 6, 7, 7, 7, 7],
}


def vectorizer(shape, kind=T.INT64, **attributes):
    chosen = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0} | POOL | attributes
    return model([h.make_node("TfIdfVectorizer", ["x"], ["y"], **chosen)], [value("x", shape, kind)], [value("y", None)])


@pytest.mark.parametrize("lengths", [(1, 3), (2, 2), (3, 3), (1, 1)])
@pytest.mark.parametrize("skips", [0, 2])
def test_counts(lengths, skips):
    m = vectorizer(("n", "c"), min_gram_length=lengths[0], max_gram_length=lengths[1], max_skip_count=skips)
    compare(m, *({"x": RNG.integers(4, 9, (n, c))} for n, c in ((1, 12), (3, 30), (2, 1), (1, 0), (1, 4))))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_weights_belong_to_the_grams(mode):
    m = vectorizer(("c",), T.INT32, mode=mode, max_skip_count=1, weights=[1.0, 2.5, 3.0, 4.0, 0.5, 6.0, 7.0])
    compare(m, *({"x": RNG.integers(5, 8, c).astype(np.int32)} for c in (9, 0, 1, 40)))


BROKEN = {
    "a pool that is cut short": {"pool_int64s": [5, 6, 5, 6, 6]},
    "too few weights": {"weights": [1.0]},
    "an unknown mode": {"mode": "BM25"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_damaged_pools(case):
    with pytest.raises(tcomp.Error, match="TC0203"):
        tcomp.compile(vectorizer(("c",), **BROKEN[case]))


def test_strings_are_refused():
    attributes = {k: v for k, v in POOL.items() if k != "pool_int64s"} | {"pool_strings": ["a"] * 14}
    node = h.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, **attributes
    )
    with pytest.raises(tcomp.Error, match="TC0202"):
        tcomp.compile(model([node], [value("x", (3,), T.INT64)], [value("y", None)]))
