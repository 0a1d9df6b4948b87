"""Train a small convolutional classifier on scikit-learn's digits, in NumPy, and write it as ONNX.

    python examples/models/train_digits.py

Writes beside itself `digits.onnx` (images: f32[batch, 1, 8, 8] in 0..1 -> logits: f32[batch, 10]) and `digits_test.npz` (the
images and labels that training never saw). Deterministic: the seed is fixed. Takes a few seconds.
"""

from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
SEED, EPOCHS, BATCH, HELD_OUT = 7, 30, 32, 360
CHANNELS = (32, 64)


class Conv:
    """A 3x3 convolution with padding 1, as a product of patches [N, H, W, 9 C] and weights [9 C, O]. Arrays are channels-last."""

    def __init__(self, rng, inputs, outputs):
        self.w = (rng.standard_normal((9 * inputs, outputs)) * np.sqrt(2 / (9 * inputs))).astype(np.float32)
        self.b = np.zeros(outputs, np.float32)

    def forward(self, x):
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = sliding_window_view(padded, (3, 3), axis=(1, 2))  # [N, H, W, C, 3, 3]
        self.patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(*x.shape[:3], -1)
        return self.patches @ self.w + self.b

    def backward(self, g):
        """The gradients of weights and bias, then that of the input."""
        n, h, w, _ = g.shape
        flat = g.reshape(-1, g.shape[-1])
        gradients = self.patches.reshape(len(flat), -1).T @ flat, flat.sum(0)
        spread = (g @ self.w.T).reshape(n, h, w, 3, 3, -1)
        x = np.zeros((n, h + 2, w + 2, spread.shape[-1]), np.float32)
        for i in range(3):
            for j in range(3):
                x[:, i : i + h, j : j + w] += spread[:, :, :, i, j]
        return gradients, x[:, 1:-1, 1:-1]


class Dense:
    """x @ w + b."""

    def __init__(self, rng, inputs, outputs):
        self.w = (rng.standard_normal((inputs, outputs)) * np.sqrt(1 / inputs)).astype(np.float32)
        self.b = np.zeros(outputs, np.float32)

    def forward(self, x):
        self.x = x
        return x @ self.w + self.b

    def backward(self, g):
        return (self.x.T @ g, g.sum(0)), g @ self.w.T


class Relu:
    def forward(self, x):
        self.on = x > 0
        return x * self.on

    def backward(self, g):
        return (), g * self.on


class MaxPool:
    """The largest of each 2x2 square; the gradient is shared by equals."""

    def forward(self, x):
        n, h, w, c = x.shape
        self.squares = x.reshape(n, h // 2, 2, w // 2, 2, c)
        self.top = self.squares.max((2, 4), keepdims=True)
        return self.top[:, :, 0, :, 0]

    def backward(self, g):
        hit = self.squares == self.top
        spread = hit * (g[:, :, None, :, None] / hit.sum((2, 4), keepdims=True, dtype=np.float32))
        n, h, _, w, _, c = spread.shape
        return (), spread.reshape(n, 2 * h, 2 * w, c)


class Flatten:
    def forward(self, x):
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, g):
        return (), g.reshape(self.shape)


class Adam:
    """Adam (Kingma and Ba, 2015) on a list of arrays, updated in place."""

    def __init__(self, parameters):
        self.parameters, self.step = parameters, 0
        self.moments = [(np.zeros_like(p), np.zeros_like(p)) for p in parameters]

    def update(self, gradients, rate):
        self.step += 1
        for p, g, (m, v) in zip(self.parameters, gradients, self.moments):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= rate * (m / (1 - 0.9**self.step)) / (np.sqrt(v / (1 - 0.999**self.step)) + 1e-8)


def build(rng):
    """The layers: two convolutions, each with ReLU and pooling, and a linear classifier."""
    first, second = CHANNELS
    features = [Conv(rng, 1, first), Relu(), MaxPool(), Conv(rng, first, second), Relu(), MaxPool(), Flatten()]
    return [*features, Dense(rng, 4 * second, 10)]


def predict(layers, x):
    for layer in layers:
        x = layer.forward(x)
    return x


def gradients_of(layers, x, labels):
    """Gradients of the mean cross entropy, in the order of the parameters."""
    logits = predict(layers, x)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    g, collected = p / np.float32(len(labels)), []
    for layer in reversed(layers):
        gradients, g = layer.backward(g)
        collected = [*gradients, *collected]
    return collected


def shifted(rng, x):
    """Each image moved by up to one pixel, so that the classifier does not learn places by heart."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moves = rng.integers(0, 3, (len(x), 2))
    return np.stack([p[i : i + 8, j : j + 8] for p, (i, j) in zip(padded, moves)])


def train(layers, rng, x, labels):
    parameters = [p for layer in layers for p in (getattr(layer, "w", None), getattr(layer, "b", None)) if p is not None]
    adam = Adam(parameters)
    for epoch in range(EPOCHS):
        order = rng.permutation(len(x))
        rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for start in range(0, len(x), BATCH):
            pick = order[start : start + BATCH]
            adam.update(gradients_of(layers, shifted(rng, x[pick]), labels[pick]), rate)


def to_onnx(layers):
    """The model in ONNX's channels-first layout; the classifier's rows are permuted from (h, w, c) to (c, h, w)."""
    convs, dense = [layer for layer in layers if isinstance(layer, Conv)], layers[-1]
    weights, nodes, value = {}, [], "images"
    for k, conv in enumerate(convs):
        weights[f"w{k}"] = np.ascontiguousarray(conv.w.reshape(3, 3, -1, len(conv.b)).transpose(3, 2, 0, 1))
        weights[f"b{k}"] = conv.b
        nodes += [
            helper.make_node("Conv", [value, f"w{k}", f"b{k}"], [f"conv{k}"], f"conv{k}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"conv{k}"], [f"relu{k}"], f"relu{k}"),
            helper.make_node("MaxPool", [f"relu{k}"], [f"pool{k}"], f"pool{k}", kernel_shape=[2, 2], strides=[2, 2]),
        ]
        value = f"pool{k}"
    weights["w"] = np.ascontiguousarray(dense.w.reshape(2, 2, -1, 10).transpose(2, 0, 1, 3).reshape(-1, 10))
    weights["b"] = dense.b
    nodes.append(helper.make_node("Flatten", [value], ["flat"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", "w", "b"], ["logits"], "classifier"))
    images = helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["batch", 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 10])
    initializers = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "digits", [images], [logits], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="train_digits.py")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    rng = np.random.default_rng(SEED)
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    images = (digits.images[order, :, :, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    layers = build(rng)
    train(layers, rng, images[HELD_OUT:], labels[HELD_OUT:])
    guess = predict(layers, images[:HELD_OUT]).argmax(1)
    print(f"accuracy on {HELD_OUT} held-out images: {(guess == labels[:HELD_OUT]).mean():.2%}")
    onnx.save(to_onnx(layers), HERE / "digits.onnx")
    np.savez_compressed(HERE / "digits_test.npz", images=images[:HELD_OUT].transpose(0, 3, 1, 2), labels=labels[:HELD_OUT])


if __name__ == "__main__":
    main()
