"""The command line on tiny models: what it prints, what it writes, and its exit codes."""

import json
import os
import subprocess
import sys

import click
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tcomp
from tcomp import driver
from tcomp.cli import cli, invoke
from tcomp.cli.console import show_bytes, show_seconds
from tcomp.cli.explain import kernels_of
from tcomp.cli.model import parse_dims, size_of
from tcomp.cli.run import write_arrays
from tcomp.errors import Error
from tcomp.ir.artifact import Port

W = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Options of a command line hold for its process; here for one test."""
    for name in ("TCOMP_NUM_THREADS", "TCOMP_CACHE", "TCOMP_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """relu(x @ w) with a symbolic number of rows."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Relu", ["p"], ["y"], "clamp")]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", k]) for n, k in (("x", 4), ("y", 3))]
    graph = helper.make_graph(nodes, "tiny", ports[:1], ports[1:], [numpy_helper.from_array(W, "w")])
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path.write_bytes(made.SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def artifact(model):
    path = model.replace(".onnx", ".tcomp")
    assert invoke(["compile", model, "-o", path]) == 0
    return path


def test_help_is_complete_and_light():
    heavy = "print([m for m in ('onnx', 'rich') if m in sys.modules])"
    code = f"import sys; from tcomp.cli import invoke; invoke(['--help']); {heavy}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert all(name in done.stdout for name in ("compile", "run", "bench", "explain", "opt", "doctor", "Exit codes"))
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


@pytest.mark.parametrize("command", list(cli.commands.values()), ids=lambda c: c.name)
def test_every_command_teaches_by_example(command):
    text = command.get_help(click.Context(command, info_name=command.name))
    assert f"tcomp {command.name}" in text.partition("Example")[2]
    undocumented = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert undocumented == []


def test_module_entry():
    done = subprocess.run([sys.executable, "-m", "tcomp", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and tcomp.__version__ in done.stdout


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["run"], ["run", "no-such-file.onnx"], ["compile", __file__], ["run", __file__, "--dim", "n=x"],
                  ["run", __file__, "--dim", "n=1", "--dim", "n=2"]]
)
def test_usage_errors_are_2(arguments, capsys):
    assert invoke(arguments) == 2
    assert "Usage" in capsys.readouterr().err


def test_a_file_that_is_no_model_is_1(tmp_path, capsys):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\x08\x07not a model")
    assert invoke(["run", str(path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("TC02") and "Traceback" not in shown


def test_compile_and_run_the_artifact(artifact, tmp_path, capsys):
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    capsys.readouterr()
    code = invoke(["run", artifact, "--input", f"x={tmp_path}/x.npy", "--output", str(tmp_path / "out"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0 and told["outputs"][0]["shape"] == [5, 3]
    np.testing.assert_allclose(np.load(told["outputs"][0]["file"]), np.maximum(x @ W, 0), rtol=1e-5)


def test_run_a_model_on_random_inputs(model, capsys):
    assert invoke(["run", model, "--dim", "rows=7", "--repeat", "3"]) == 0
    shown = capsys.readouterr().out
    assert "[7, 4]" in shown and "[7, 3]" in shown and "3 calls" in shown


def test_sequences_are_drawn_and_written(tmp_path, capsys):
    sequences = [helper.make_tensor_sequence_value_info(n, TensorProto.FLOAT, ["?", 3]) for n in "st"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])
    graph = helper.make_graph([helper.make_node("SequenceInsert", ["s", "x"], ["t"])], "g", [sequences[0], x], sequences[1:])
    path, out = tmp_path / "s.onnx", tmp_path / "out"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    assert invoke(["run", str(path), "--output", str(out)]) == 0
    assert "t[2]" in capsys.readouterr().out
    assert sorted(np.load(f).shape for f in out.iterdir()) == [(1, 3), (2, 2), (2, 2)]
    assert invoke(["explain", str(path)]) == 0
    assert "s: sequence of f32[?, ?]" in capsys.readouterr().out


def test_maps_are_written_by_key(tmp_path, capsys):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, None)))
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[3, 8])
    graph = helper.make_graph([node], "g", [x], [helper.make_value_info("y", maps)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path, out = tmp_path / "m.onnx", tmp_path / "out"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    assert invoke(["run", str(path), "--dim", "rows=5", "--output", str(out)]) == 0
    assert "y[3]" in capsys.readouterr().out
    assert [np.load(f).shape for f in out.iterdir()] == [(5,), (5,)]


@pytest.mark.parametrize("size, rows", [("?", 1), ("3..8", 3)])
def test_a_dimension_left_open(model, size, rows, capsys):
    assert invoke(["run", model, "--dim", f"rows={size}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [rows, 3]


def test_a_promised_range_is_compiled_in_and_kept_to(model, tmp_path, capsys):
    path = str(tmp_path / "m.tcomp")
    assert invoke(["compile", model, "-o", path, "--emit", "graph", "--dim", "rows=3..8"]) == 0
    assert "symbols(rows [3, 8])" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.zeros((9, 4), np.float32))
    assert invoke(["run", path, "--input", f"x={tmp_path}/x.npy"]) == 1
    assert "TC0605" in (shown := capsys.readouterr().err) and "rows" in shown


@pytest.mark.parametrize("size", ["?", "4", "1..8"])
def test_a_dimension_that_the_model_has_not_is_refused(model, size, capsys):
    assert invoke(["compile", model, "--emit", "graph", "--dim", f"typo={size}", "--no-cache"]) == 1
    shown = capsys.readouterr().err
    assert "TC0105" in shown and "typo" in shown and "rows" in shown


def test_a_range_of_multiples_is_kept_to(model):
    exe = tcomp.compile(model, dims={"rows": range(0, 65, 8)}, use_cache=False)
    for rows in (0, 8, 64):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_allclose(exe(x), np.maximum(x @ W, 0))
    for rows in (4, 72):
        with pytest.raises(Error, match=r"(?s)TC0605.*rows must be at most 64, a multiple of 8"):
            exe(np.ones((rows, 4), np.float32))


def test_the_report_says_what_became_of_dimensions(model, capsys):
    for size, told in (("?", "symbolic"), ("4", "given by dims"), ("1..8", "symbolic, 1 to 8")):
        assert invoke(["compile", model, "--report", "--dim", f"rows={size}", "--no-cache"]) == 0
        shown = capsys.readouterr().out
        assert "Dimensions" in shown and "rows" in shown and told in shown and "Memory" in shown
    assert invoke(["compile", model, "--report", "--json", "--dim", "rows=4", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["dimensions"] == [["rows", "4", "given by dims", ""]]
    assert invoke(["explain", model]) == 0
    assert "for all sizes of a call" in capsys.readouterr().out


NO_SIZES = ({"rows": (8, 3)}, {"rows": range(3, 9, 2)}, {"rows": range(0)}, {"rows": -1}, {"rows": (1, 2, 3)}, {"rows": "n"})


@pytest.mark.parametrize("dims", [*NO_SIZES, {"columns": (1, 2)}])
def test_sizes_that_are_none(model, dims):
    with pytest.raises(Error, match="TC0105"):
        tcomp.compile(model, dims=dims)


def test_dims_are_those_of_models():
    with pytest.raises(Error, match=r"TC0105.*dims="):
        tcomp.compile(lambda x: x + 1, tcomp.spec("f32[n]"), dims={"n": 3})


def test_an_unknown_dimension_is_refused(artifact, capsys):
    assert invoke(["run", artifact, "--dim", "columns=7"]) == 1
    assert "TC0801" in (shown := capsys.readouterr().err) and "rows" in shown


def test_an_unknown_input_is_refused(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    assert invoke(["run", model, "--input", f"q={tmp_path}/x.npy"]) == 1
    assert "TC0603" in capsys.readouterr().err


def test_a_wrong_shape_is_refused_as_json_too(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((2, 9), np.float32))
    assert invoke(["run", model, "--input", f"x={tmp_path}/x.npy", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "TC0601"


def test_pickled_arrays_are_refused(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    assert invoke(["run", model, "--input", f"x={tmp_path}/x.npy"]) == 1
    assert "TC0801" in capsys.readouterr().err


def test_outputs_cannot_leave_their_folder(tmp_path):
    arrays = {"../../up": np.zeros(1), "a/b": np.zeros(2), "a_b": np.zeros(3), "": np.zeros(4)}
    paths = write_arrays(str(tmp_path / "out"), arrays)
    assert {os.path.dirname(p) for p in paths.values()} == {str(tmp_path / "out")}
    assert [np.load(p).size for p in paths.values()] == [1, 2, 3, 4]


@pytest.mark.parametrize("level", ["graph", "tile", "placed", "reg", "llvm", "asm"])
def test_emit(model, level, tmp_path):
    path = tmp_path / "text"
    assert invoke(["compile", model, "--emit", f"{level}={path}"]) == 0
    assert path.read_text().strip()


def test_compile_without_a_destination(model):
    assert invoke(["compile", model]) == 2


@pytest.mark.parametrize("option", [("--emit", "tile="), ("--output", "")])
def test_compile_to_a_place_that_is_not_there(option, model, tmp_path, capsys):
    assert invoke(["compile", model, option[0], f"{option[1]}{tmp_path}/no/such/folder"]) == 1
    assert "TC0801" in capsys.readouterr().err


def test_compile_for_another_machine(model, tmp_path, capsys):
    """Code for a machine that this one is not: written and explained, but not run."""
    path = str(tmp_path / "foreign.tcomp")
    assert invoke(["compile", model, "-o", path, "--target", "cpu:aarch64", "--emit", f"asm={tmp_path}/asm"]) == 0
    assert "fmla" in (tmp_path / "asm").read_text()
    assert invoke(["explain", path]) == 0
    capsys.readouterr()
    if os.uname().machine == "x86_64":
        assert invoke(["run", path]) == 1
        assert "TC0702" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["TCOMP_CHECK", "TCOMP_DEBUG"])
def test_a_knob_that_is_not_understood(name, model, monkeypatch, capsys):
    monkeypatch.setenv(name, "many")
    assert invoke(["run", model, "--no-cache", "--dim", "rows=2"]) == 1
    assert "TC0002" in capsys.readouterr().err


def test_bench_beside_onnxruntime(model, capsys):
    assert invoke(["bench", model, "--against", "onnxruntime", "--seconds", "0.05", "--dim", "rows=4", "--json"]) == 0
    rows = {r["system"]: r for r in json.loads(capsys.readouterr().out)["systems"]}
    assert set(rows) == {"tcomp", "onnxruntime"}
    assert rows["tcomp"]["ratio"] == 1 and rows["onnxruntime"]["median_s"] > 0 and rows["onnxruntime"]["gap"] < 1e-5


def test_bench_of_an_unknown_peer(model):
    assert invoke(["bench", model, "--against", "abacus"]) == 2


def test_explain(model, capsys):
    assert invoke(["explain", model]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("realised", "kernel ", " at tile", " at placed", " at reg", "Memory and time"))
    assert "product" in shown or "MatMul" in shown or "dot" in shown


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """(a @ b) @ v, which is a @ (b @ v)."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"], "first"), helper.make_node("MatMul", ["p", "v"], ["y"], "second")]
    shapes = {"a": [256, 256], "b": [256, 256], "v": [256, 8], "y": [256, 8]}
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    made = helper.make_model(helper.make_graph(nodes, "chain", ports[:3], ports[3:]), opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path = tmp_path_factory.mktemp("model") / "chain.onnx"
    path.write_bytes(made.SerializeToString())
    return str(path)


def test_explain_tells_what_algebra_did(chain, tmp_path, capsys):
    assert invoke(["explain", chain]) == 0
    shown = capsys.readouterr().out
    rewritten, searched = shown[shown.index("Algebra: what was rewritten") :].split("Algebra: what was searched")
    assert "flatten" in rewritten and "second" in rewritten and "x " in rewritten
    for label in ("predicted gain", "search ended: saturated", "optimal 1", "saturation", "extraction", "difference in float64"):
        assert label in searched, label
    assert "equal in finite fields: 1" in searched
    path = tmp_path / "page.html"
    assert invoke(["explain", chain, "--html", str(path)]) == 0
    assert "Algebra: what was rewritten" in path.read_text()


def test_explain_tells_what_algebra_left(model, capsys):
    """A window too small to be tried has no row; TCOMP_ALGEBRA=0 tries none."""
    assert invoke(["explain", model]) == 0
    assert "Algebra" not in capsys.readouterr().out


def test_compile_reports_the_gain_of_algebra(chain, monkeypatch, capsys):
    assert invoke(["compile", chain, "--report", "--measure"]) == 0
    shown = capsys.readouterr().out
    gains = shown[shown.index("time without it over time with it") :]
    assert "predicted" in gains and "measured" in gains
    assert invoke(["compile", chain, "--report", "--measure", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["algebra"]["predicted"] > 2 and told["algebra"]["measured"] > 1.1
    (row,) = told["report"]["algebra"]
    assert row["rules"] == ["flatten"] and row["changed"]
    monkeypatch.setenv("TCOMP_ALGEBRA", "0")
    assert invoke(["compile", chain, "--report", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"]["algebra"] == [] and told["algebra"] == {"predicted": 1.0, "measured": None}


def test_measure_needs_the_report(chain):
    assert invoke(["compile", chain, "--measure"]) == 2


def test_explain_as_a_page(artifact, tmp_path):
    path = tmp_path / "page.html"
    assert invoke(["explain", artifact, "--html", str(path)]) == 0
    text = path.read_text()
    assert text.startswith("<!doctype html>") and "kernel " in text
    assert "src=" not in text and "href=" not in text and "<script" not in text


def test_explain_an_unknown_kernel(model, capsys):
    assert invoke(["explain", model, "--kernel", "nonesuch"]) == 1
    assert "TC0801" in capsys.readouterr().err


def test_opt_restarts_after_every_pass(model, tmp_path, monkeypatch, capsys):
    """What TCOMP_DUMP wrote after any pass, read again and taken through the passes that are left, ends in the same text."""
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path))
    assert invoke(["compile", model, "--emit", f"reg={tmp_path}/reg", "--no-cache"]) == 0
    monkeypatch.delenv("TCOMP_DUMP")
    dumps = sorted(tmp_path.glob("*.tc"))
    assert [d.stem.partition("-")[2] for d in dumps][-len(driver.PIPELINE) :] == list(driver.PIPELINE)
    for number, dump in enumerate(reversed(dumps)):
        left = driver.PIPELINE[len(driver.PIPELINE) - number :]
        capsys.readouterr()
        assert invoke(["opt", str(dump), "--passes", ",".join(left)]) == 0
        assert without_places(capsys.readouterr().out) == without_places((tmp_path / "reg").read_text())


def test_dumps_are_written_though_the_program_is_cached(model, tmp_path, monkeypatch):
    assert invoke(["compile", model, "--emit", f"reg={tmp_path}/reg"]) == 0
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path / "dumps"))
    assert invoke(["compile", model, "--emit", f"reg={tmp_path}/reg"]) == 0
    assert (tmp_path / "dumps" / "00-graph.tc").exists()


def without_places(text):
    """A dump's text but for where its operations came from, which the text of GRAPH does not hold."""
    return [line for line in text.splitlines() if not line.startswith("realised")]


def test_opt_lists_the_passes(capsys):
    assert invoke(["opt", "--list"]) == 0
    *shown, _, order = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    assert [s[0] for s in shown] == list(driver.PASSES) and all(len(s) == 2 for s in shown)
    assert order == ["pipeline:", ",".join(driver.PIPELINE)]


def test_opt_of_an_unknown_pass(tmp_path, capsys):
    (tmp_path / "m.tc").write_text("module @f stage graph target cpu\n")
    assert invoke(["opt", str(tmp_path / "m.tc"), "--passes", "magic"]) == 1
    assert "TC0801" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"hello", b"\xff\xfe\x00", b"module @f stage nowhere target cpu\n"])
def test_opt_of_what_is_no_dump(data, tmp_path, capsys):
    (tmp_path / "m.tc").write_bytes(data)
    assert invoke(["opt", str(tmp_path / "m.tc")]) == 1
    assert "TC0301" in capsys.readouterr().err


ADD = """module @f stage graph target cpu
func @f (%x : f32[3]) -> (y = %add)
  %add : f32[3] = add %x, %x
"""


def test_opt_verifies_what_it_reads(tmp_path, capsys):
    (tmp_path / "m.tc").write_text(ADD.replace("%add : f32[3]", "%add : f32[4]"))
    for passes in ([], ["--passes", "fold"]):
        assert invoke(["opt", str(tmp_path / "m.tc"), *passes]) == 1
        assert "declared f32[4], inferred f32[3]" in capsys.readouterr().err


@pytest.mark.parametrize("passes", ["place", "expand", "memory_plan", "lower,lower", "lower,fold", "lower,expand"])
def test_passes_at_a_stage_that_they_do_not_take(passes, tmp_path, capsys):
    (tmp_path / "m.tc").write_text(ADD)
    assert invoke(["opt", str(tmp_path / "m.tc"), "--passes", passes]) == 1
    assert "TC0401" in capsys.readouterr().err


def test_doctor(capsys):
    assert invoke(["doctor", "--json"]) == 0
    assert {f["what"]: f["ok"] for f in json.loads(capsys.readouterr().out)}["a small program"] is True


def test_doctor_says_what_fails(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TCOMP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_text("in the way")
    assert invoke(["doctor", "--json"]) == 1
    assert {f["what"]: f["ok"] for f in json.loads(capsys.readouterr().out)}["cache folder"] is False


def test_doctor_shows_an_error_without_a_place(monkeypatch, capsys):
    monkeypatch.setenv("TCOMP_CHECK", "9")
    assert invoke(["doctor", "--json"]) == 1
    found = {f["what"]: f["found"] for f in json.loads(capsys.readouterr().out)}["a small program"]
    assert found == "TC0002: TCOMP_CHECK=9\n  expected: a number from 0 to 3"


def test_a_fault_of_tcomp_is_70_with_a_reproducer(model, monkeypatch, capsys):
    def broken(*arguments, **options):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(tcomp, "compile", broken)
    assert invoke(["run", model, "--dim", "rows=3"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("TC0001: ZeroDivisionError: inside") and "Traceback" not in shown
    with open(shown.partition("reproducer: ")[2].strip()) as f:
        told = json.load(f)
    assert told["command"] == ["tcomp", "run", model, "--dim", "rows=3"] and model in told["files"]
    assert any("inside" in line for line in told["traceback"])
    os.remove(f.name)


def test_debug_shows_the_frames(model, monkeypatch, capsys):
    monkeypatch.setenv("TCOMP_DEBUG", "1")
    assert invoke(["run", model, "--dim", "columns=3"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_early(model):
    command = f"{sys.executable} -m tcomp compile {model} --emit llvm | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout)) == (0, "", 10)


def test_progress_shows_on_a_terminal_only():
    code = "from tcomp.cli import console; console.PATIENCE = 0.0; import time\nwith console.progress('weaving'): time.sleep(0.3)"
    main, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=terminal, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    assert b"weaving" in os.read(main, 10_000)
    os.close(main)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert piped.stderr == piped.stdout == b""


def test_ctrl_c(model, monkeypatch):
    monkeypatch.setattr(tcomp, "compile", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    assert invoke(["run", model]) == 130


def test_dims_are_parsed():
    assert parse_dims(None, None, ("a=8", "b=1..64", "c=?")) == {"a": 8, "b": (1, 64), "c": None}
    for text in ("a", "a=", "=3", "a=-1", "a=1..", "a=1..2..3"):
        with pytest.raises(click.BadParameter):
            parse_dims(None, None, (text,))


def test_sizes_of_random_inputs():
    port = Port("x", "f32", ("n",))
    given = ({}, {"n": None}, {"n": 0}, {"n": 9}, {"n": (3, 8)}, {"n": (0, 8)})
    assert [size_of("n", dims, port) for dims in given] == [1, 1, 0, 9, 3, 1]
    with pytest.raises(Error, match="TC0801"):
        size_of("2 * n", {"n": 3}, port)


def test_units():
    assert [show_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 GiB"]
    assert [show_seconds(s) for s in (2.5, 0.25, 0.0021, 3.21e-5)] == ["2.5 s", "250 ms", "2.1 ms", "32.1 µs"]


def test_kernels_are_found_in_text():
    text = "module @m stage tile\n\nkernel @a (x) -> (y)\n  grid ()\n\nkernel b (x) -> (y)\n  grid ()\n\nmain (x) -> (y)\n"
    assert list(kernels_of(text)) == ["a", "b"] and kernels_of(text)["a"].endswith("grid ()")
