"""Small ONNX models, and their answers by tcomp's GRAPH interpreter and by onnxruntime."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tcomp.frontend.onnx import load
from tcomp.ir.interp.graph import run

TYPES = {np.dtype(k): v for k, v in {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64,
    "int32": TensorProto.INT32, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
}.items()}  # fmt: skip


def model(nodes, inputs, outputs, opset=18, constants=None, functions=(), domains=(), ir_version=8):
    """A model. inputs: name -> (dtype, shape) or an array; outputs: name -> dtype, or a list of names (float32)."""
    ports = []
    for name, spec in inputs.items():
        dtype, shape = (spec.dtype, spec.shape) if isinstance(spec, np.ndarray) else (np.dtype(spec[0]), spec[1])
        ports.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
    outs = outputs if isinstance(outputs, dict) else dict.fromkeys(outputs, "float32")
    results = [onnx.ValueInfoProto(name=n, type=helper.make_tensor_type_proto(TYPES[np.dtype(t)], None)) for n, t in outs.items()]
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", ports, results, weights)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=ir_version)


def ours(m, feeds, dims=None):
    """The results of the GRAPH function, by the interpreter."""
    f = load(m.SerializeToString(), dims)
    values = dict(f.defaults) | feeds
    return run(f, [values[p["name"]] for p in f.params])


def theirs(m, feeds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def compare(m, feeds, rtol=1e-5, atol=1e-6, dims=None):
    """Fail unless both give the same."""
    for got, want in zip(ours(m, feeds, dims), theirs(m, feeds), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
