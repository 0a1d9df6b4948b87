"""The worker: one process beside the compiler's own that saturates windows, a request and an answer being a line of JSON each.

`python -m tcomp.passes.egraph.worker BYTES SECONDS` serves standard input; egglog has neither a node limit nor a timeout, so the
process has a limit on its memory, and one on the time of the processor that an answer may take, after which the system ends it.
`Worker.ask` gives None with the reason then, and the next request starts another process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tcomp.passes.egraph.terms import dump

MEMORY = 3 << 30  # bytes of address space
PROCESSOR = 6.0  # seconds of the processor for an answer: the budget of a saturation, twice, and of an extraction
START = 60.0  # seconds for the process to come up
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}  # one processor is what it may take


class Worker:
    """A persistent process that answers requests one at a time; safe to share between threads."""

    def __init__(self, memory: int = MEMORY, processor: float = PROCESSOR) -> None:
        self.memory, self.processor = memory, processor
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def _forget(self) -> None:
        """A process without a worker: a new one, and the child of a fork, whose parent's worker is not its own."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any] | None, str]:
        """The answer, or None and why there is none: `time`, `memory` or what went wrong.

        seconds: how long to wait for a process that is stopped or kept from running; its work has its own limits.
        """
        with self._lock:
            process = self._started()
            if process is None:
                return None, "the worker did not start"
            line = self._exchange(process, dump(request), seconds)
            if line is None:
                late = process.poll() in (None, -signal.SIGPROF)
                self.stop()
                return None, "time" if late else "memory"
        answer = json.loads(line)
        return (None, answer["failed"]) if "failed" in answer else (answer, "")

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def start(self) -> bool:
        """Have the process up; whether it is."""
        with self._lock:
            return self._started() is not None

    def begin(self) -> None:
        """Have the process come up meanwhile, for a request that is likely. Where someone asks already, it is up."""
        if self._lock.acquire(blocking=False):
            try:
                self._begun()
            finally:
                self._lock.release()

    def _started(self) -> subprocess.Popen[bytes] | None:
        process = self._begun()
        if not self._ready:
            self._ready = _read_line(process, START) == b"ready"
        if not self._ready:
            self.stop()
        return self._process

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        command = [sys.executable, "-m", __name__, str(self.memory), str(self.processor)]
        pipe, alone = subprocess.PIPE, {**os.environ, **ALONE}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=alone)
        self._ready = False
        return self._process

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], line: str, seconds: float) -> bytes | None:
        assert process.stdin is not None
        try:
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return _read_line(process, seconds)


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """A line that the process writes within `seconds`; None where it ends or is late."""
    assert process.stdout is not None
    until = time.monotonic() + seconds
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            chunk = process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not chunk:
                process.wait()
                return None
            parts.append(chunk)
            if chunk.endswith(b"\n"):
                return b"".join(parts)[:-1]
    return None


def serve(memory: int, processor: float) -> None:
    """Answer requests until standard input ends."""
    import resource

    from tcomp.passes.egraph.engine import Engine
    from tcomp.passes.egraph.extract import warm
    from tcomp.passes.rules.families import RULES

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    warm()
    engine = Engine(RULES)
    print("ready", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, processor)
        answer, engine = _answered(engine, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        print(dump(answer), flush=True)
        engine.renew()


def _answered(engine: Any, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """The answer to one request. After a failure the e-graph is in an unknown state: a new one takes over."""
    from tcomp.passes.egraph.engine import Engine
    from tcomp.passes.egraph.solve import solve

    try:
        _forget_peak()
        answer = solve(engine, request)
        return {**answer, "report": {**answer["report"], "memory": _peak()}}, engine
    except MemoryError:
        sys.exit(1)
    except BaseException as fault:  # a panic of egglog is no Exception
        if isinstance(fault, KeyboardInterrupt | SystemExit):
            raise
        return {"failed": f"{type(fault).__name__}: {fault}"[:200]}, Engine(engine.rules)


def _forget_peak() -> None:
    """Where the system can, `_peak` is from now on; elsewhere since the process began."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Most bytes of memory that this process had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
