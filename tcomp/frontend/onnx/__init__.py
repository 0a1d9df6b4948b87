"""The ONNX front end: `load` turns a model into a GRAPH function. Nothing here imports onnx before a model is read."""

from tcomp.frontend.onnx.reader import load

__all__ = ["load"]
