"""Text to object bytes to addresses: targets, symbols, faults, unloading."""

import ctypes
import platform
import struct

import pytest

from tcomp.codegen.llvm.compile import assembly, compile_text, host, named
from tcomp.errors import Error
from tcomp.runtime import loader, native

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %s = add i64 %a, %b\n  ret i64 %s\n}\n"
MACHINE = {"x86_64": 62, "aarch64": 183}


def machine_of(data: bytes) -> int:
    assert data[:4] == b"\x7fELF"
    return struct.unpack_from("<H", data, 18)[0]


def function(address: int, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(address)


@pytest.mark.parametrize("fast", [False, True])
def test_compiled_code_runs(fast):
    library = loader.load(compile_text(ADD, host(), fast=fast), ("add",))
    add = function(library["add"], ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert add(40, 2) == 42


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_every_named_target_is_emitted_on_any_host(name):
    arch = "aarch64" if name == "aarch64" else "x86_64"
    assert machine_of(compile_text(ADD, named(name))) == MACHINE[arch]


def test_host_is_this_machine():
    assert named("host") == host()
    assert machine_of(compile_text(ADD, host())) == MACHINE[platform.machine()]


def test_unknown_cpu():
    with pytest.raises(Error, match=r"TC0502.*x86-64-v9"):
        named("x86-64-v9")


def test_assembly_shows_the_targets_instructions():
    text = "define <16 x float> @f(<16 x float> %a) {\n  %s = fadd <16 x float> %a, %a\n  ret <16 x float> %s\n}\n"
    assert "zmm" in assembly(text, named("x86-64-v4"))
    assert "fadd\tv0.4s" in assembly(text, named("aarch64"))


@pytest.mark.parametrize("text", ["define i64 @f( {", "define i64 @f() {\n  ret i32 0\n}\n"])
def test_an_invalid_module_is_a_fault_of_code_generation(text):
    with pytest.raises(Error, match="TC0001"):
        compile_text(text, host())


def test_libc_and_libm_resolve():
    text = """
declare double @fma(double, double, double)
declare float @fmaf(float, float, float)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
define double @f(double %x) {
  %p = alloca double
  %q = alloca double
  %s = call ptr @memset(ptr %p, i32 0, i64 8)
  %r = call double @fma(double %x, double %x, double 1.0)
  store double %r, ptr %p
  %c = call ptr @memcpy(ptr %q, ptr %p, i64 8)
  %m = call ptr @memmove(ptr %p, ptr %q, i64 8)
  %v = load double, ptr %p
  %n = fptrunc double %v to float
  %o = call float @fmaf(float %n, float 2.0, float 0.0)
  %w = fpext float %o to double
  ret double %w
}
"""
    library = loader.load(compile_text(text, host()), ("f",))
    assert function(library["f"], ctypes.c_double, ctypes.c_double)(3.0) == 20.0


def test_provided_symbols_resolve_by_name():
    first = loader.load(compile_text(ADD, host()), ("add",))
    loader.provide({"tc_test_add": first["add"]})
    text = "declare i64 @tc_test_add(i64, i64)\ndefine i64 @twice(i64 %a) {\n"
    text += "  %s = call i64 @tc_test_add(i64 %a, i64 %a)\n  ret i64 %s\n}\n"
    second = loader.load(compile_text(text, host()), ("twice",))
    assert function(second["twice"], ctypes.c_int64, ctypes.c_int64)(21) == 42


def test_equal_names_in_two_objects_do_not_meet():
    one, two = (loader.load(compile_text(f"define i64 @f() {{\n  ret i64 {k}\n}}\n", host()), ("f",)) for k in (1, 2))
    assert [function(lib["f"], ctypes.c_int64)() for lib in (one, two)] == [1, 2]


@pytest.mark.parametrize("data", [b"junk", compile_text(ADD, named("x86-64"))[:100]])
def test_bytes_that_are_no_object_are_refused(data):
    with pytest.raises(Error, match="TC0701"):
        loader.load(data, ("add",))


def test_a_missing_symbol_is_an_error_not_an_abort(capfd):
    text = "declare i64 @tc_nobody_has_this()\n"
    text += "define i64 @f() {\n  %r = call i64 @tc_nobody_has_this()\n  ret i64 %r\n}\n"
    with pytest.raises(Error, match="TC0701"):
        loader.load(compile_text(text, host()), ("f",))
    assert "tc_nobody_has_this" in capfd.readouterr().err


def test_a_dropped_library_is_unloaded():
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("r-xp" in line and line.rstrip().endswith(" 0") for line in maps)

    data = compile_text(ADD, host())
    held = [loader.load(data, ("add",)) for _ in range(20)]
    most = mapped()
    held.clear()
    assert mapped() <= most - 20


@pytest.mark.parametrize("machine", native.MACHINES)
def test_the_runtime_compiles_for_every_machine(machine):
    target = named("aarch64" if machine == "aarch64" else "x86-64")
    assert machine_of(compile_text(native.core(machine), target)) == MACHINE[machine]


def test_no_runtime_for_other_machines():
    with pytest.raises(Error, match="TC0702"):
        native.core("riscv64")


def test_a_free_threaded_python_is_refused(monkeypatch):
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    with pytest.raises(Error) as e:
        native.start(lambda text: b"")
    assert e.value.code == "TC0702" and "free-threaded" in str(e.value)
