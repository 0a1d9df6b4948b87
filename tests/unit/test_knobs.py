"""Knobs: what their variables hold becomes a value of the right type in range, or TC0002."""

import pytest

import tcomp
from tcomp import knobs
from tcomp.errors import Error
from tcomp.knobs import KNOBS

NUMBERS = [k for k in KNOBS if type(k.default) is int]
SWITCHES = [k for k in KNOBS if type(k.default) is bool]


@pytest.mark.parametrize("knob", KNOBS, ids=lambda k: k.name)
def test_what_is_unset_or_empty_is_the_default(knob, monkeypatch):
    monkeypatch.delenv(knob.name, raising=False)
    assert knob.read() == knob.default
    monkeypatch.setenv(knob.name, "")
    assert knob.read() == knob.default


@pytest.mark.parametrize("knob", NUMBERS, ids=lambda k: k.name)
def test_numbers_are_in_range(knob, monkeypatch):
    for text in ("0", "1", str(knob.most)):
        monkeypatch.setenv(knob.name, text)
        assert knob.read() == int(text)
    for text in ("-1", str(knob.most + 1), "9" * 30, "1.5", "two", "0x10"):
        monkeypatch.setenv(knob.name, text)
        with pytest.raises(Error, match=rf"TC0002: {knob.name}={text}"):
            knob.read()


@pytest.mark.parametrize("knob", SWITCHES, ids=lambda k: k.name)
def test_switches_are_on_or_off(knob, monkeypatch):
    for text, value in (("0", False), ("no", False), ("False", False), ("1", True), ("YES", True), ("true", True)):
        monkeypatch.setenv(knob.name, text)
        assert knob.read() is value
    monkeypatch.setenv(knob.name, "perhaps")
    with pytest.raises(Error, match="TC0002"):
        knob.read()


def test_dumps_need_a_folder(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("TCOMP_DUMP", str(folder))
        with pytest.raises(Error, match="TC0002: TCOMP_DUMP="):
            tcomp.compile(lambda x: x + 1, tcomp.spec("f32[3]"), use_cache=False)


def test_every_knob_is_in_the_table():
    assert {k for k in vars(knobs).values() if isinstance(k, knobs.Knob)} == set(KNOBS)
