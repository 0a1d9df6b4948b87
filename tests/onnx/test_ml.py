"""ai.onnx.ml in native code: scikit-learn models against scikit-learn, single operators against onnxruntime."""

import warnings

import numpy as np
import pytest
from compiled_support import ML, agree, native, one
from onnx import TensorProto, numpy_helper
from onnx_support import theirs
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification, make_regression
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVR, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import tcomp
from tcomp.errors import Error

RANDOM = np.random.default_rng(0)


def data(classes):
    """Features that f32 holds exactly, so that both sides compare the same numbers with thresholds."""
    x, y = make_classification(160, 10, n_informative=6, n_classes=classes, random_state=0)
    return x.astype(np.float32).astype(np.float64), y


def converted(estimator, x, **options):
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_onnx(estimator, x[:1].astype(np.float32), options=options or None, target_opset={"": 18, "ai.onnx.ml": 3})


CLASSIFIERS = {
    "random forest": (lambda: RandomForestClassifier(8, max_depth=5, random_state=0), 1e-5),
    "gradient boosting": (lambda: GradientBoostingClassifier(n_estimators=8, random_state=0), 1e-5),
    "histogram gradient boosting": (lambda: HistGradientBoostingClassifier(max_iter=8, random_state=0), 1e-5),
    "tree": (lambda: DecisionTreeClassifier(random_state=0), 1e-6),
    "logistic regression": (LogisticRegression, 1e-5),
    "scaler, logistic regression": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), 1e-5),
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, classes):
    (make, tolerance), (x, y) = CLASSIFIERS[name], data(classes)
    fitted = make().fit(x, y)
    labels, probabilities = native(converted(fitted, x, zipmap=False), {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(labels, fitted.predict(x))
    np.testing.assert_allclose(probabilities, fitted.predict_proba(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear", "sigmoid"])
def test_support_vector_classifiers(kernel, classes):
    x, y = data(classes)
    fitted = SVC(kernel=kernel).fit(x, y)
    labels, _ = native(converted(fitted, x, zipmap=False), {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(labels, fitted.predict(x))


@pytest.mark.parametrize("classes", [2, 3])
def test_support_vector_probabilities(classes):
    x, y = data(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = SVC(probability=True, random_state=0).fit(x, y)
    labels, probabilities = native(converted(fitted, x, zipmap=False), {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(labels, fitted.predict(x))
    np.testing.assert_allclose(probabilities, fitted.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_pipeline_of_scaler_and_support_vectors(classes):
    x, y = data(classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make_pipeline(MinMaxScaler(), StandardScaler(), SVC(probability=True, random_state=0)).fit(x, y)
    labels, probabilities = native(converted(fitted, x, zipmap=False), {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(labels, fitted.predict(x))
    np.testing.assert_allclose(probabilities, fitted.predict_proba(x), atol=1e-4)


def test_a_linear_support_vector_classifier():
    x, y = data(3)
    fitted = LinearSVC(random_state=0).fit(x, y)
    labels, scores = native(converted(fitted, x), {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(labels, fitted.predict(x))
    np.testing.assert_allclose(scores, fitted.decision_function(x), rtol=1e-4, atol=1e-5)


OTHERS = {
    "boosted stumps": lambda: AdaBoostClassifier(n_estimators=5, random_state=0),
    "nearest neighbours": lambda: KNeighborsClassifier(3),
    "naive Bayes": GaussianNB,
    "perceptron": lambda: MLPClassifier((8,), max_iter=50, random_state=0),
    "discriminants": LinearDiscriminantAnalysis,
    "clusters": lambda: KMeans(3, n_init=1, random_state=0),
    "isolation forest": lambda: IsolationForest(n_estimators=5, random_state=0),
    "one class": OneClassSVM,
}


@pytest.mark.parametrize("name", OTHERS)
def test_models_around_these_operators(name):
    x, y = data(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = OTHERS[name]().fit(x, y)
    m = converted(fitted, x, **({"zipmap": False} if hasattr(fitted, "predict_proba") else {}))
    labels = native(m, {"X": x.astype(np.float32)})[0]
    np.testing.assert_array_equal(np.ravel(labels), fitted.predict(x))


REGRESSORS = {
    "random forest": lambda: RandomForestRegressor(8, max_depth=6, random_state=0),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=8, random_state=0),
    "histogram gradient boosting": lambda: HistGradientBoostingRegressor(max_iter=8, random_state=0),
    "support vectors": lambda: SVR(kernel="sigmoid"),
    "support vectors, radial": SVR,
    "support vectors, linear": lambda: SVR(kernel="linear"),
    "scaler, support vectors": lambda: make_pipeline(StandardScaler(), NuSVR(nu=0.3)),
    "tree": lambda: DecisionTreeRegressor(random_state=0),
    "extra trees": lambda: ExtraTreesRegressor(6, max_depth=6, random_state=0),
    "ridge": Ridge,
    "scalers": lambda: make_pipeline(StandardScaler(), MinMaxScaler(), Normalizer(), LinearRegression()),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    x, y = make_regression(160, 10, random_state=0)
    x = x.astype(np.float32).astype(np.float64)
    fitted = REGRESSORS[name]().fit(x, y)
    (got,) = native(converted(fitted, x), {"X": x.astype(np.float32)})
    np.testing.assert_allclose(got[:, 0], fitted.predict(x), rtol=1e-4, atol=1e-2)


def test_one_hot_of_integers():
    from skl2onnx import to_onnx

    x = RANDOM.integers(0, 4, (40, 3))
    fitted = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(x[:30])
    (got,) = native(to_onnx(fitted, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}), {"X": x})
    np.testing.assert_array_equal(got, fitted.transform(x))


def test_one_program_for_all_batch_sizes():
    x, y = data(3)
    fitted = RandomForestClassifier(4, max_depth=4, random_state=0).fit(x, y)
    exe = tcomp.compile(converted(fitted, x, zipmap=False).SerializeToString(), use_cache=False)
    for count in (0, 1, 7, 160):
        labels = exe.run({"X": x[:count].astype(np.float32)})["label"]
        np.testing.assert_array_equal(labels, fitted.predict(x[:count]) if count else np.zeros(0, np.int64))


# Single operators


X = (np.round(RANDOM.standard_normal((50, 6)) * 2) / 2).astype(np.float32)  # meets thresholds exactly
HOLES = np.where(RANDOM.random(X.shape) < 0.2, np.float32("nan"), X)
MODES = [f"BRANCH_{m}" for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]
LABELLED = {"l": "int64", "y": "float32"}


def ml(op, feeds, outputs=("y",), version=3, **attributes):
    return one(op, feeds, outputs, domain=ML, version=version, **attributes)


def trees(kind, targets, modes=MODES, missing=False, positive=False, ids=None, count=4, depth=3):
    """Complete trees with all modes. kind: `target` or `class`."""
    r = np.random.default_rng(1)
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    leaf = [i >= inner for i in range(nodes)] * count
    own = list(range(nodes)) * count
    weights = [(t, i, k) for t in range(count) for i in range(inner, nodes) for k in (range(targets) if ids is None else ids)]
    values = r.random(len(weights)) / count if positive else r.standard_normal(len(weights))
    return {
        "nodes_treeids": [t for t in range(count) for _ in range(nodes)],
        "nodes_nodeids": own,
        "nodes_featureids": [0 if end else int(r.integers(6)) for end in leaf],
        "nodes_modes": ["LEAF" if end else str(r.choice(modes)) for end in leaf],
        "nodes_values": [0.0 if end else float(np.round(r.standard_normal() * 2) / 2) for end in leaf],
        "nodes_truenodeids": [0 if end else 2 * i + 1 for i, end in zip(own, leaf)],
        "nodes_falsenodeids": [0 if end else 2 * i + 2 for i, end in zip(own, leaf)],
        "nodes_missing_value_tracks_true": [int(missing and not end and r.integers(2)) for end in leaf],
        **dict(zip((f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids"), (list(column) for column in zip(*weights)))),
        f"{kind}_weights": [float(v) for v in values],
    }


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_tree_regressors(aggregate, targets):
    attributes = {"n_targets": targets, "aggregate_function": aggregate, "base_values": [0.5, -1.0][:targets]}
    m = ml("TreeEnsembleRegressor", {"x": HOLES}, **attributes, **trees("target", targets, missing=True))
    agree(m, {"x": HOLES}, 1e-5)


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_post_transforms(transform):
    positive = transform == "PROBIT"
    m = ml("TreeEnsembleRegressor", {"x": X}, n_targets=3, post_transform=transform, **trees("target", 3, positive=positive))
    agree(m, {"x": X}, 1e-4)
    attributes = trees("class", 3, positive=positive) | {"classlabels_int64s": [7, 3, 5], "post_transform": transform}
    agree(ml("TreeEnsembleClassifier", {"x": X}, LABELLED, **attributes), {"x": X}, 1e-4)


TWO_CLASSES = {
    "a decision value": ({"positive": False, "ids": [0]}, "NONE"),
    "a decision value, sigmoid": ({"positive": False, "ids": [0]}, "LOGISTIC"),
    "a probability": ({"positive": True, "ids": [0]}, "NONE"),
    "a probability, sigmoid": ({"positive": True, "ids": [0]}, "LOGISTIC"),
    "of the second class": ({"positive": False, "ids": [1]}, "NONE"),
}


@pytest.mark.parametrize("case", TWO_CLASSES)
def test_two_classes_with_one_score(case):
    options, transform = TWO_CLASSES[case]
    m = ml(
        "TreeEnsembleClassifier",
        {"x": X},
        LABELLED,
        classlabels_int64s=[7, 3],
        post_transform=transform,
        **trees("class", 2, **options),
    )
    agree(m, {"x": X}, 1e-5)


def test_a_tree_that_is_one_leaf():
    leaves = {
        "nodes_featureids": [0],
        "nodes_modes": ["LEAF"],
        "nodes_values": [0.0],
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [0],
    }
    where = {"nodes_treeids": [0], "nodes_nodeids": [0], "target_treeids": [0], "target_nodeids": [0], "target_ids": [0]}
    agree(ml("TreeEnsembleRegressor", {"x": X}, n_targets=1, target_weights=[2.5], **leaves, **where), {"x": X}, 0)


def test_probabilities_of_pairs_that_contradict_each_other():
    common = {"kernel_type": "RBF", "prob_a": [-1.0, -2.0, -0.5], "prob_b": [0.1, 0.2, -0.1], **VECTORS}
    three = {"vectors_per_class": [2, 1, 2], "coefficients": TEN, "rho": [0.2, 0.1, -0.3], "classlabels_ints": [5, 6, 9]}
    agree(ml("SVMClassifier", {"x": X}, LABELLED, **three, **common), {"x": X}, 1e-5)


def test_thresholds_in_double_precision():
    attributes = trees("target", 1)
    for name, shift in (("nodes_values", 1e-12), ("target_weights", 0)):
        wide = np.array(attributes.pop(name), np.float64) + shift
        attributes[f"{name}_as_tensor"] = numpy_helper.from_array(wide, name)
    x = X.astype(np.float64)
    agree(ml("TreeEnsembleRegressor", {"x": x}, n_targets=1, **attributes), {"x": x}, 1e-6)


def test_trees_on_integers_are_those_on_floats():
    whole = np.round(X).astype(np.int64)
    attributes = {"n_targets": 1, **trees("target", 1)}
    want = native(ml("TreeEnsembleRegressor", {"x": X}, **attributes), {"x": whole.astype(np.float32)})
    agree(ml("TreeEnsembleRegressor", {"x": whole}, **attributes), {"x": whole}, 0, want)


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_tree_ensemble_of_two_lists_with_a_set(aggregate):
    def tensor(values, dtype=np.float32):
        return numpy_helper.from_array(np.array(values, dtype), "t")

    m = ml(
        "TreeEnsemble", {"x": X}, version=5, n_targets=2, aggregate_function=aggregate, tree_roots=[0, 3],
        nodes_modes=tensor([0, 4, 2, 6], np.uint8), nodes_featureids=[0, 1, 2, 3], nodes_splits=tensor([0.5, 1, 0, np.nan]),
        nodes_truenodeids=[1, 0, 2, 4], nodes_trueleafs=[0, 1, 1, 1], nodes_falsenodeids=[2, 1, 3, 5],
        nodes_falseleafs=[0, 1, 1, 1], leaf_targetids=[0, 1, 0, 1, 1, 0], leaf_weights=tensor([1, -2, 3, 0.5, -0.25, 2]),
        membership_values=tensor([0, 0.5, 1, np.nan]),
    )  # fmt: skip
    agree(m, {"x": X}, 1e-6)


LINEAR = {"coefficients": [float(v) for v in RANDOM.standard_normal(18)], "intercepts": [0.1, 0.2, 0.3]}
ONE_ROW = {"coefficients": LINEAR["coefficients"][:6], "intercepts": [0.1]}


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_models(transform):
    agree(ml("LinearRegressor", {"x": X}, targets=3, post_transform=transform, **LINEAR), {"x": X}, 1e-5)
    three = ml("LinearClassifier", {"x": X}, LABELLED, classlabels_ints=[4, 5, 9], post_transform=transform, **LINEAR)
    agree(three, {"x": X}, 1e-5)
    two = ml("LinearClassifier", {"x": X}, LABELLED, classlabels_ints=[4, 5], post_transform=transform, **ONE_ROW)
    agree(two, {"x": X}, 1e-5)


VECTORS = {"kernel_params": [0.3, 0.5, 3.0], "support_vectors": [float(v) for v in RANDOM.standard_normal(30)]}
FIVE = [0.3, -0.2, 0.5, 0.1, -0.7]
TEN = [float(v) for v in np.random.default_rng(3).standard_normal(10)]


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_kernels(kernel):
    common = {"kernel_type": kernel, **VECTORS}
    agree(ml("SVMRegressor", {"x": X}, n_supports=5, coefficients=FIVE, rho=[0.2], **common), {"x": X}, 1e-3)
    three = {"vectors_per_class": [2, 1, 2], "coefficients": TEN, "rho": [0.2, 0.1, -0.3], "classlabels_ints": [5, 6, 9]}
    agree(ml("SVMClassifier", {"x": X}, LABELLED, **three, **common), {"x": X}, 1e-3)
    two = {"vectors_per_class": [2, 3], "coefficients": FIVE, "rho": [0.2], "classlabels_ints": [5, 6]}
    agree(ml("SVMClassifier", {"x": X}, LABELLED, **two, **common), {"x": X}, 1e-3)


def test_one_class_and_linear_support_vectors():
    common = {"kernel_type": "RBF", "one_class": 1, "n_supports": 5, "coefficients": FIVE, "rho": [0.02]}
    agree(ml("SVMRegressor", {"x": X}, **common, **VECTORS), {"x": X}, 1e-6)
    for labels in ([5, 6, 9], [5, 6]):
        plain = {"kernel_type": "LINEAR", "rho": [0.2], "kernel_params": [0.0] * 3, "classlabels_ints": labels}
        plain["coefficients"] = LINEAR["coefficients"][: 6 * len(labels)]
        agree(ml("SVMClassifier", {"x": X}, LABELLED, **plain), {"x": X}, 1e-4)


PREPARATIONS = {
    "scale": ("Scaler", {"x": X}, {"offset": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "scale": [0.5] * 6}, {}),
    "scale integers": ("Scaler", {"x": np.arange(12).reshape(2, 6)}, {"offset": [1.0], "scale": [0.5]}, {}),
    "by maximum": ("Normalizer", {"x": np.append(X, 0 * X[:2], 0)}, {"norm": "MAX"}, {}),
    "by sum": ("Normalizer", {"x": np.append(X, 0 * X[:2], 0)}, {"norm": "L1"}, {}),
    "by length": ("Normalizer", {"x": np.append(X, 0 * X[:2], 0)}, {"norm": "L2"}, {}),
    "threshold": ("Binarizer", {"x": X}, {"threshold": 0.5}, {}),
    "fill NaN": ("Imputer", {"x": HOLES},
                 {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "replaced_value_float": float("nan")}, {}),
    "fill integers": ("Imputer", {"x": np.arange(12).reshape(2, 6)},
                      {"imputed_value_int64s": [77], "replaced_value_int64": 3}, {"outputs": {"y": "int64"}}),
    "columns": ("ArrayFeatureExtractor", {"x": X, "i": np.array([3, 1])}, {}, {}),
    "elements": ("ArrayFeatureExtractor", {"x": X[0], "i": np.array([[3, 1]])}, {}, {}),
    "join": ("FeatureVectorizer", {"x": X, "z": X[:, :2]}, {"inputdimensions": [6, 2]}, {}),
    "one hot": ("OneHotEncoder", {"x": RANDOM.integers(0, 5, (4, 2))}, {"cats_int64s": [3, 1, 0], "zeros": 1}, {}),
    "one hot of floats": ("OneHotEncoder", {"x": RANDOM.integers(0, 3, (4, 2)).astype(np.float32)},
                          {"cats_int64s": [0, 1, 2], "zeros": 0}, {}),
    "labels": ("LabelEncoder", {"x": RANDOM.integers(0, 5, (4, 2))},
               {"keys_int64s": [3, 1, 0], "values_floats": [0.5, 1.5, 2.5], "default_float": -9.0}, {"version": 2}),
    "labels of NaN": ("LabelEncoder", {"x": np.array([1, np.nan, 2], np.float32)},
                      {"keys_floats": [1.0, float("nan")], "values_int64s": [5, 6]}, {"outputs": {"y": "int64"}, "version": 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", PREPARATIONS)
def test_preparations(case):
    op, feeds, attributes, how = PREPARATIONS[case]
    agree(ml(op, feeds, **how, **attributes), feeds, 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_as_a_list_of_maps(classes):
    """What scikit-learn's converter writes unless it is told otherwise."""
    x, y = data(classes)
    fitted = make_pipeline(StandardScaler(), RandomForestClassifier(6, max_depth=5, random_state=0)).fit(x, y)
    m = converted(fitted, x)
    exe = tcomp.compile(m.SerializeToString(), use_cache=False)
    for count in (160, 1, 0):
        feeds = {"X": x[:count].astype(np.float32)}
        found = exe.run(feeds)
        assert list(found) == [o.name for o in m.graph.output]
        maps = list(found.values())[1]
        assert len(maps) == count and all(list(row) == list(range(classes)) for row in maps)
        for row, wanted in zip(maps, theirs(m, feeds)[1] if count else ()):
            assert row.keys() == wanted.keys() and np.allclose(list(row.values()), list(wanted.values()), atol=1e-5)
    np.testing.assert_array_equal(exe.run({"X": x.astype(np.float32)})["output_label"], fitted.predict(x))


def test_a_map_by_itself(tmp_path):
    m = ml("ZipMap", {"x": X[0, :2].copy()}, classlabels_int64s=[7, 3])
    del m.graph.output[:]
    m.graph.output.add(name="y").type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    exe = tcomp.compile(m.SerializeToString(), use_cache=False)
    exe.save(tmp_path / "map.tcomp")
    for program in (exe, tcomp.load(tmp_path / "map.tcomp")):
        assert program.run({"x": X[0, :2]})["y"] == [{7: float(X[0, 0]), 3: float(X[0, 1])}]
        assert "maps of i64 to f32" in str(program.outputs[0])


def test_an_unknown_category_fails_the_call():
    m = ml("OneHotEncoder", {"x": np.array([[0, 7]])}, cats_int64s=[0, 1], zeros=0)
    exe = tcomp.compile(m.SerializeToString(), use_cache=False)
    np.testing.assert_array_equal(exe.run({"x": np.array([[0, 1]])})["y"], np.eye(2, dtype=np.float32)[None])
    with pytest.raises(Error) as caught:
        exe.run({"x": np.array([[0, 7]])})
    assert caught.value.code == "TC0604"


REFUSED = {
    "a map from strings": ("ZipMap", {"x": X}, {"classlabels_strings": ["a", "b"]}, "zipmap=False"),
    "labels that are strings": ("LinearClassifier", {"x": X}, {"classlabels_strings": ["a", "b"], **ONE_ROW}, "integer labels"),
    "categories that are strings": ("OneHotEncoder", {"x": X}, {"cats_strings": ["a", "b"]}, "integers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_do(case):
    op, feeds, attributes, hint = REFUSED[case]
    with pytest.raises(Error) as caught:
        tcomp.compile(
            ml(op, feeds, LABELLED if op == "LinearClassifier" else ("y",), **attributes).SerializeToString(), use_cache=False
        )
    assert caught.value.code == "TC0202" and op in str(caught.value) and hint in str(caught.value)


BROKEN = {
    "a child that is not there": {"nodes_truenodeids": [99] * 60},
    "children in a cycle": {"nodes_truenodeids": [0] * 60},
    "a feature before the row": {"nodes_featureids": [-1] * 60},
    "more targets than memory": {"n_targets": 10**12},
    "a feature beyond the row": {"nodes_featureids": [17] * 60},
    "a mode that does not exist": {"nodes_modes": ["BRANCH_MAYBE"] * 60},
    "a weight of no target": {"target_ids": [5] * 32},
    "too few values": {"nodes_values": [0.0]},
}


@pytest.mark.parametrize("case", BROKEN)
def test_damaged_trees(case):
    m = ml("TreeEnsembleRegressor", {"x": X}, **({"n_targets": 1} | trees("target", 1) | BROKEN[case]))
    with pytest.raises(Error) as caught:
        tcomp.compile(m.SerializeToString(), use_cache=False)
    assert caught.value.code == "TC0203"
