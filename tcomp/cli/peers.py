"""Other runtimes on the same model, for `tcomp bench`: each a function of inputs that gives the outputs in the model's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tcomp.errors import Error

if TYPE_CHECKING:
    import numpy as np

Call = Callable[[Mapping[str, "np.ndarray"]], list["np.ndarray"]]


def onnxruntime_call(path: str, threads: int) -> Call:
    """onnxruntime on the CPU. Its threads stop spinning when a call ends, so that they do not disturb the others."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, dict(inputs)))


def openvino_call(path: str, threads: int) -> Call:
    """OpenVINO on the CPU, in f32."""
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(core.read_model(path), "CPU", hints).create_infer_request()
    return lambda inputs: list(request.infer(dict(inputs), share_inputs=True).values())


PEERS: dict[str, Callable[[str, int], Call]] = {"onnxruntime": onnxruntime_call, "openvino": openvino_call}


def installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def peer_call(name: str, path: str, threads: int) -> Call:
    """The call of a peer. TC0801 where it is not installed or refuses the model."""
    if not installed(name):
        raise Error("TC0801", f"--against {name}: it is not installed", hint=f"pip install {name}")
    try:
        return PEERS[name](path, threads)
    except Exception as error:  # whatever the peer raises: it is the peer that refuses
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Error("TC0801", f"{name} refuses the model: {reason}", hint="leave it out of --against") from error
