"""Every operator of ONNX has a meaning or a reason; the page of operators says what rows refuse."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import onnx_page


def test_every_operator_has_a_row_or_a_body_or_a_reason():
    assert onnx_page.unexplained() == []


def test_reasons_are_found_in_rows_and_in_what_they_call():
    refused = {line[0]: line[2] for line in (onnx_page.line("", n) for n in ("Einsum", "TfIdfVectorizer", "LSTM", "Add")) if line}
    assert "n-grams of strings" in refused["`TfIdfVectorizer`"]
    assert "activation …" in refused["`LSTM`"]
    assert refused["`Add`"] == ""


def test_opsets_of_what_is_deprecated_end():
    assert onnx_page.line("", "Upsample")[1] == "7 to 9"
    assert onnx_page.line("", "Unique")[1] == "11"
    assert onnx_page.line("", "StringSplit") is None
