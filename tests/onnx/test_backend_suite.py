"""The ONNX backend suite: what `expected_pass.txt` lists passes; `tools/update_expected_pass.py` lets the list grow."""

from collections import Counter
from unittest import SkipTest

import pytest
from backend_suite import left_out, listed, suite

AT_LEAST = {"node": 900, "pytorch-converted": 75, "pytorch-operator": 25}


@pytest.mark.parametrize("name", listed())
def test_listed(name):
    suite()[name]()


def test_the_list_is_in_order_and_long_enough():
    names = listed()
    assert names == sorted(set(names))
    counts = Counter(name.split("/")[0] for name in names)
    assert {kind: counts[kind] for kind in AT_LEAST if counts[kind] < AT_LEAST[kind]} == {}


def test_every_test_is_listed_or_left_out_with_a_reason():
    left = left_out()
    assert set(listed()) & left.keys() == set()
    assert set(listed()) | left.keys() == set(suite())
    assert [n for n, reason in left.items() if len(reason.split()) < 1 or reason == "not run yet"] == []


def test_refusals_are_skips_with_a_reason():
    with pytest.raises(SkipTest, match="not supported"):
        suite()["node/test_string_concat"]()
