"""What `tcomp.compile` is asked: models, functions, sizes and options that are none are refused, and the user reads why."""

import numpy as np
import pytest

import tcomp
from tcomp.errors import Error


def refused(*args, **options):
    with pytest.raises(Error) as e:
        tcomp.compile(*args, use_cache=False, **options)
    return e.value


@pytest.mark.parametrize("source", [3, None, ["model.onnx"], np.ones(3)])
def test_what_is_no_model(source):
    assert refused(source).code == "TC0201"


def test_a_saved_program_is_no_model(tmp_path):
    path = tmp_path / "double.tcomp"
    tcomp.compile(lambda x: x * 2, tcomp.spec("f32[4]"), use_cache=False).save(path)
    fault = refused(path)
    assert fault.code == "TC0201" and str(path) in fault.found and "tcomp.load" in fault.hint


@pytest.mark.parametrize("dims", [["batch"], "batch=8", 8])
def test_sizes_without_names(dims):
    fault = refused(b"", dims=dims)
    assert fault.code == "TC0105" and "dims" in fault.found


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"precision": "bf16"}, "precision='f32'"), ({"fp": "strict"}, "fp='bitwise'")],
)
def test_options_that_nothing_is_compiled_for(options, expected):
    fault = refused(lambda x: x, tcomp.spec("f32[4]"), **options)
    assert fault.code == "TC0105" and fault.expected == expected


def test_the_order_of_the_text_can_be_kept():
    def attention(q, k, v):
        scores = q @ k
        weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        return weights / np.sum(weights, axis=-1, keepdims=True) @ v

    specs = [tcomp.spec(text) for text in ("f32[64, 16]", "f32[16, 64]", "f32[64, 16]")]
    kernels = [tcomp.compile(attention, *specs, fp=fp, use_cache=False).report()["kernels"] for fp in (None, "bitwise")]
    assert kernels[0] < kernels[1]


def test_a_function_has_its_own_names():
    specs = [tcomp.spec("f32[4]")] * 2
    exe = tcomp.compile(lambda x, *more, scale=2.0: x * more[0] + scale, *specs, use_cache=False)
    assert [p.name for p in exe.inputs] == ["x", "more_0"]
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(exe.run({"x": x, "more_0": x})["result"], x * x + 2)


def test_arguments_that_are_missing():
    fault = refused(lambda x, y: x + y, tcomp.spec("f32[4]"))
    assert fault.code == "TC0105" and "'y'" in fault.found and fault.expected == "a spec or an array for each of x, y"
