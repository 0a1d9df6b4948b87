"""A transformer layer whose batch and sequence are symbolic: compiled once, right for 40 sizes, nothing compiled again."""

import os
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tcomp
from tcomp import trace

WIDTH, HEADS, WORDS, LONGEST = 32, 4, 50, 64
SIZES = (
    *((b, s) for b in (0, 1, 2, 3) for s in (0, 1, 2, 7, 16, 33)),
    *((b, s) for b in (5, 8, 17) for s in (1, 4, 15, 31)),
    *((1, 64), (4, 63), (9, 40), (33, 2)),
)


def weights():
    rng = np.random.default_rng(0)
    made = {
        "words": rng.standard_normal((WORDS, WIDTH)), "places": rng.standard_normal((LONGEST, WIDTH)),
        "wqkv": rng.standard_normal((WIDTH, 3 * WIDTH)) / 6, "wo": rng.standard_normal((WIDTH, WIDTH)) / 6,
        "w1": rng.standard_normal((WIDTH, 4 * WIDTH)) / 6, "b1": rng.standard_normal(4 * WIDTH),
        "w2": rng.standard_normal((4 * WIDTH, WIDTH)) / 12, "c": rng.standard_normal(WIDTH),
        "g": 1 + rng.standard_normal(WIDTH) / 8,
        "scale": np.sqrt(WIDTH // HEADS), "minus": -1e4, "one": 1.0, "half": 0.5, "root": np.sqrt(2.0),
    }  # fmt: skip
    integers = {"zero": 0, "one_": 1, "axis0": [0], "axis1": [1], "heads": [0, 0, 3, HEADS, WIDTH // HEADS],
                "joined": [0, 0, WIDTH], "masked": [1, 2]}  # fmt: skip
    return {k: np.asarray(v, np.float32) for k, v in made.items()} | {k: np.asarray(v, np.int64) for k, v in integers.items()}


def layer(of_mask=("batch", "sequence")):
    """Embeddings of words and places, masked attention, normalisation, and a perceptron with GELU, as exporters write them."""
    n = helper.make_node
    nodes = [
        n("Shape", ["ids"], ["shape"]), n("Gather", ["shape", "axis1"], ["length"]),
        n("Slice", ["places", "axis0", "length", "axis0"], ["where"]),
        n("Gather", ["words", "ids"], ["words_of"]), n("Add", ["words_of", "where"], ["x"]),
        n("MatMul", ["x", "wqkv"], ["all"]), n("Reshape", ["all", "heads"], ["split"]),
        n("Transpose", ["split"], ["turned"], perm=[2, 0, 3, 1, 4]),
        *(n("Gather", ["turned", k], [name], axis=0) for k, name in (("zero", "q"), ("one_", "k"))),
        n("Gather", ["turned", "two"], ["v"], axis=0), n("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        n("MatMul", ["q", "kt"], ["raw"]), n("Div", ["raw", "scale"], ["scores"]),
        n("Cast", ["mask"], ["seen"], to=TensorProto.FLOAT), n("Unsqueeze", ["seen", "masked"], ["seen4"]),
        n("Sub", ["one", "seen4"], ["hidden"]), n("Mul", ["hidden", "minus"], ["bias"]),
        n("Add", ["scores", "bias"], ["masked_"]),
        n("Softmax", ["masked_"], ["p"], axis=-1), n("MatMul", ["p", "v"], ["mixed"]),
        n("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]), n("Reshape", ["back", "joined"], ["merged"]),
        n("MatMul", ["merged", "wo"], ["o"]), n("Add", ["x", "o"], ["y"]),
        n("LayerNormalization", ["y", "g", "c"], ["z"], axis=-1, epsilon=1e-5),
        n("MatMul", ["z", "w1"], ["u"]), n("Add", ["u", "b1"], ["t"]), n("Div", ["t", "root"], ["e"]), n("Erf", ["e"], ["f"]),
        n("Add", ["f", "one"], ["f1"]), n("Mul", ["t", "f1"], ["tf"]), n("Mul", ["tf", "half"], ["gelu"]),
        n("MatMul", ["gelu", "w2"], ["d"]), n("Add", ["z", "d"], ["out"]),
    ]  # fmt: skip
    constants = weights() | {"two": np.asarray(2, np.int64)}
    named = (("ids", ("batch", "sequence")), ("mask", of_mask))
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, sizes) for name, sizes in named]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "sequence", WIDTH])
    graph = helper.make_graph(nodes, "layer", ports, [out], [numpy_helper.from_array(a, k) for k, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def model():
    return layer()


@pytest.fixture(scope="module")
def exe(model):
    return tcomp.compile(model, use_cache=False)


def feeds(batch, sequence):
    rng = np.random.default_rng(batch * 100 + sequence)
    ids, mask = rng.integers(0, WORDS, (batch, sequence)), rng.integers(0, 2, (batch, sequence))
    mask[:, :1] = 1
    return {"ids": ids, "mask": mask}


def test_forty_sizes_and_nothing_is_compiled_again(model, exe):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(set(SIZES)) == 40
    exe.run(feeds(2, 5))
    events = []
    with trace.listening(lambda kind, data: events.append((kind, data))):
        for batch, sequence in SIZES:
            given = feeds(batch, sequence)
            (want,) = session.run(None, given) if batch * sequence else (np.zeros((batch, sequence, WIDTH), np.float32),)
            got = exe.run(given)["out"]
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4, err_msg=f"batch {batch}, sequence {sequence}")
    assert events == []


def test_a_mask_with_dimensions_of_its_own_meets_the_scores():
    """Exporters often name the dimensions of each input apart: the usual call has them equal, others broadcast."""
    model = layer(("rows", "columns"))
    exe = tcomp.compile(model, use_cache=False)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, sequence, rows, columns in ((2, 7, 2, 7), (3, 16, 1, 16), (3, 5, 3, 1), (4, 9, 1, 1), (1, 1, 1, 1), (1, 6, 5, 6)):
        given = {"ids": feeds(batch, sequence)["ids"], "mask": feeds(rows, columns)["mask"]}
        (want,) = session.run(None, given)
        np.testing.assert_allclose(exe.run(given)["out"], want, rtol=2e-4, atol=2e-4)
    assert [row[1] for row in exe.report()["variants"]] == ["rows = batch, columns = sequence", "all other sizes"]
    with pytest.raises(tcomp.Error, match=r"(?s)TC0605.*Add"):
        exe.run({"ids": feeds(2, 7)["ids"], "mask": feeds(2, 6)["mask"]})


def test_the_count_of_events_sees_a_compilation(model):
    events = []
    with trace.listening(lambda kind, data: events.append(kind)):
        tcomp.compile(model, dims={"batch": 2, "sequence": 3}, use_cache=False)
    assert "pass" in events


def test_the_report_states_the_memory_of_a_call(exe):
    said = exe.report()["bytes"]["call"]
    assert isinstance(said, str) and "batch" in said and "sequence" in said
    before = 0
    for batch, sequence in ((0, 0), (1, 1), (2, 7), (8, 31), (33, 64)):
        at = exe.report({"batch": batch, "sequence": sequence})["bytes"]
        results = 4 * batch * sequence * WIDTH
        assert at["call"] == at["arena"] + at["scratch"] + results >= before
        before = at["call"]


def test_a_call_takes_no_more_than_the_report_says(model):
    """In a process of its own, on one thread: what the allocator has handed out in all."""
    code = """
import sys, numpy as np, tcomp
from tcomp.runtime import memory
exe = tcomp.compile(sys.stdin.buffer.read(), use_cache=False)
b, s = 9, 40
ids = np.ones((b, s), np.int64)
before = memory.held()
out = exe(ids, ids)
print(memory.held() - before, exe.report({"batch": b, "sequence": s})["bytes"]["call"])
"""
    environment = {**os.environ, "TCOMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], input=model.SerializeToString(), capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    taken, said = map(int, done.stdout.split())
    assert 0 < taken <= said * 1.25 + (1 << 16)  # blocks are rounded up, and there are counters


def test_the_report_says_what_became_of_both_dimensions(exe):
    rows = exe.report()["dimensions"]
    assert "variants" not in exe.report()  # nobody has promised a range: that of the sequence is the model's own
    assert [row[:2] for row in rows[:2]] == [["batch", "symbolic"], ["sequence", f"symbolic, 0 to {LONGEST}"]]
    assert rows[2][:2] == ["sequence", f"at most {LONGEST}"] and "Add" in rows[2][3]
