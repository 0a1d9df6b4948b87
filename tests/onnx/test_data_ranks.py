"""Operators on tensors of which only the rank is known: every float operand of a test of the ONNX suite comes out of a Reshape to
a shape that is an input."""

import warnings
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import tcomp

NAMES = [
    "add_bcast", "and3d", "argmax_keepdims_example", "averagepool_2d_default", "basic_conv_with_padding", "batchnorm_example",
    "batchnorm_example_training_mode", "clip", "concat_2d_axis_1", "cumsum_2d_axis_1", "depthtospace_example",
    "einsum_batch_matmul", "eyelike_populate_off_main_diagonal", "flatten_axis2", "gather_1", "gathernd_example_float32",
    "gelu_default_1", "gemm_all_attributes", "globalaveragepool", "gru_defaults", "hardmax_axis_1", "instancenorm_example",
    "layer_normalization_3d_axis1_epsilon", "logsoftmax_axis_1", "lrn", "lstm_with_peepholes", "matmul_4d", "maxpool_2d_pads",
    "mean_example", "reduce_sum_keepdims_example", "resize_upsample_sizes_cubic", "rnn_seq_length", "roialign_aligned_true",
    "scatternd", "softmax_axis_0", "split_equal_parts_2d", "transpose_all_permutations_4", "where_example", "attention_4d_gqa",
    "group_normalization_example", "pow_bcast_array", "slice_neg", "top_k",
]


@cache
def cases():
    with warnings.catch_warnings():  # what the suite expects is computed when it is loaded, overflow and all
        warnings.simplefilter("ignore")
        return {c.name.removeprefix("test_"): c for c in collect_testcases(None)}


def array(x):
    return numpy_helper.to_array(x) if hasattr(x, "data_type") else np.asarray(x)


def of_unknown_shape(model, arrays):
    """The model with its float inputs flat, each with its shape beside it; and what to feed it."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    ports, before, feeds = [], [], {}
    for p, x in zip(model.graph.input, arrays):
        if x.dtype != np.float32 or not x.ndim:
            ports.append(p)
            feeds[p.name] = x
            continue
        flat, shape = f"{p.name} flat", f"{p.name} shape"
        before.append(h.make_node("Reshape", [flat, shape], [p.name], allowzero=1))
        ports.append(h.make_tensor_value_info(flat, T.FLOAT, [f"size of {p.name}"]))
        ports.append(h.make_tensor_value_info(shape, T.INT64, [x.ndim]))
        feeds |= {flat: x.reshape(-1), shape: np.array(x.shape)}
    nodes = [*before, *model.graph.node]
    del m.graph.node[:], m.graph.input[:], m.graph.value_info[:]
    m.graph.node.extend(nodes)
    m.graph.input.extend(ports)
    for o in m.graph.output:
        o.type.tensor_type.ClearField("shape")
    return m, feeds


@pytest.mark.parametrize("name", NAMES)
def test_only_ranks_are_known(name):
    case = cases()[name]
    inputs, outputs = case.data_sets[0]
    m, feeds = of_unknown_shape(case.model, [array(x) for x in inputs])
    results = tcomp.compile(m).run(feeds)
    for o, want in zip(m.graph.output, map(array, outputs)):
        assert results[o.name].shape == want.shape
        np.testing.assert_allclose(results[o.name], want, rtol=1e-3, atol=1e-5)
