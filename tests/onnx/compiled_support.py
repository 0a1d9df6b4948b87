"""Models of operators outside the default domain, compiled to native code and compared with onnxruntime."""

import numpy as np
from onnx import helper
from onnx_support import model, theirs

import tcomp

ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"


def one(op, feeds, outputs=("y",), constants=None, names=None, domain=MICROSOFT, version=1, **attributes):
    """A model of one node. outputs: names (float32), '' for one left out, or name -> dtype; names: the node's operands."""
    results = outputs if isinstance(outputs, dict) else dict.fromkeys(outputs, "float32")
    listed = list(results) if isinstance(outputs, dict) else list(outputs)
    node = helper.make_node(op, names or [*feeds, *(constants or {})], listed, domain=domain, **attributes)
    built = model([node], feeds, {k: v for k, v in results.items() if k}, 18, constants)
    if domain:
        built.opset_import.append(helper.make_opsetid(domain, version))
    return built


def native(m, feeds):
    """The results of the compiled model, in order."""
    return list(tcomp.compile(m.SerializeToString(), use_cache=False).run(feeds).values())


def agree(m, feeds, tolerance=1e-4, wanted=None):
    """Fail unless native code gives what onnxruntime (or `wanted`) gives."""
    for got, want in zip(native(m, feeds), theirs(m, feeds) if wanted is None else wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
