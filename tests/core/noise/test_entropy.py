import ast
import copy
import hashlib
import os
import pickle
import random
import secrets
import subprocess
import sys
import threading

import numpy as np
import pytest

from sfumato.core.noise import (
    add_noise,
    add_sparse_noise,
    discrete_gaussian,
    discrete_laplace,
    entropy,
    exponential_choice,
)
from sfumato.core.noise.entropy import KeyStream, draw_word

FORK = """
import os
import numpy as np
from sfumato.core.noise.entropy import KeyStream

stream, words = KeyStream(), np.zeros(4, np.uint64)
stream.fill(words)
reader, writer = os.pipe()
child = os.fork()
stream.fill(words)
if child == 0:
    os.write(writer, words.tobytes())
    os._exit(0)
os.waitpid(child, 0)
theirs = np.frombuffer(os.read(reader, 64), np.uint64)
assert theirs.size == 4
assert not set(theirs.tolist()) & set(words.tolist())
"""


def words(stream, size=4):
    out = np.zeros(size, np.uint64)
    stream.fill(out)
    return out.tolist()


def test_streams_differ_and_do_not_repeat():
    first, second = KeyStream(), KeyStream()
    drawn = words(first, 1000) + words(second, 1000) + words(first, 1000)
    assert len(set(drawn)) == 3000


def test_every_word_is_overwritten_across_pieces():
    out = np.zeros(50_001, np.uint64)
    KeyStream().fill(out)
    assert np.count_nonzero(out) == out.size
    assert np.unique(out).size == out.size


def test_filling_nothing_is_allowed():
    KeyStream().fill(np.empty(0, np.uint64))


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_stream_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="repeat its noise"):
        duplicate(KeyStream())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_parts_the_streams():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", FORK], check=True, env=environment)


def test_the_fork_counter_alone_changes_the_key(monkeypatch):
    monkeypatch.setattr(KeyStream, "_forks", KeyStream._forks)
    stream = KeyStream()
    before = stream._encryptor
    words(stream)
    assert stream._encryptor is before
    KeyStream._count_fork()
    words(stream)
    assert stream._encryptor is not before


def test_the_key_changes_after_a_bounded_output(monkeypatch):
    monkeypatch.setattr(entropy, "REKEY_BYTES", 64)
    stream = KeyStream()
    first = stream._encryptor
    words(stream, 8)
    assert stream._encryptor is first
    words(stream, 1)
    assert stream._encryptor is not first


def test_threads_draw_different_noise():
    drawn = {}

    def draw(name):
        drawn[name] = tuple(discrete_laplace(scale=10**9, size=50).tolist())

    threads = [threading.Thread(target=draw, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn.values())) == 8


def test_draw_word_takes_one_word(scripted):
    source = scripted([(1 << 64) - 1, 5])
    assert draw_word(source) == (1 << 64) - 1
    assert source.left == 1


DRAW = """
import sys
import numpy as np
from sfumato.core.noise import add_noise, add_sparse_noise, discrete_gaussian, discrete_laplace
from sfumato.core.noise import exponential_choice
from sfumato.core.noise.entropy import KeyStream

words = np.zeros(4, np.uint64)
KeyStream().fill(words)
nothing = np.zeros(8, np.int64)
found = [
    words,
    discrete_laplace(scale=10**9, size=8),
    discrete_gaussian(sigma=10**9, size=8),
    discrete_laplace(scale=1000, size=64),
    add_noise(nothing, kind="laplace", scale=10**9),
    add_sparse_noise(np.empty(0, np.int64), np.empty(0, np.int64), size=10**6, scale=1000, threshold=5000)[1],
    exponential_choice(np.zeros((64, 64), np.int64), rate=1),
]
print([each.tolist() for each in found])
"""


def test_two_processes_draw_different_noise():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    drawn = [
        ast.literal_eval(
            subprocess.run(
                [sys.executable, "-c", DRAW], check=True, env=environment, capture_output=True, text=True
            ).stdout
        )
        for _ in range(2)
    ]
    for one, two in zip(*drawn, strict=True):
        assert one
        assert one != two


class Entropy:
    """Stands in for the operating system's entropy: given bytes, then a digest of them without end."""

    def __init__(self, content):
        self.content, self.read = content, 0

    def __call__(self, size):
        start, self.read = self.read, self.read + size
        more = hashlib.shake_256(self.content).digest(max(0, self.read - len(self.content)))
        return (self.content + more)[start : self.read]


def pin(monkeypatch, content):
    """All ways of the standard library to fresh bytes lead to one script."""
    entropy = Entropy(content)
    monkeypatch.setattr(os, "urandom", entropy)
    monkeypatch.setattr(random, "_urandom", entropy)
    monkeypatch.setattr(secrets, "token_bytes", entropy)
    return entropy


def test_a_stream_reads_a_whole_key_and_counter_and_every_bit_of_them_matters(monkeypatch):
    content = hashlib.sha512(b"any").digest()[:48]
    source = pin(monkeypatch, content)
    first = words(KeyStream())
    assert source.read == 48  # 32 bytes of key, 16 of counter, each read and none twice
    pin(monkeypatch, content)
    assert words(KeyStream()) == first
    seen = {tuple(first)}
    for bit in range(8 * 48):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        pin(monkeypatch, bytes(changed))
        seen.add(tuple(words(KeyStream())))
    assert len(seen) == 1 + 8 * 48


def test_every_stream_reads_its_own_entropy(monkeypatch):
    source = pin(monkeypatch, b"any")
    KeyStream()
    KeyStream()
    assert source.read == 96
    monkeypatch.setattr(entropy, "REKEY_BYTES", 64)
    words(KeyStream(), 9)
    assert source.read == 192  # one more stream, which then changed its key


@pytest.mark.parametrize(
    "draw",
    [
        lambda: discrete_laplace(scale=10**9, size=8),
        lambda: discrete_laplace(scale=1000, size=64),
        lambda: discrete_gaussian(sigma=10**9, size=8),
        lambda: add_noise(np.zeros(8, np.int64), kind="gaussian", scale=1000),
        lambda: add_sparse_noise(
            np.empty(0, np.int64), np.empty(0, np.int64), size=10**6, scale=1000, threshold=5000
        )[1],
        lambda: exponential_choice(np.zeros((64, 64), np.int64), rate=1),
    ],
)
def test_noise_is_a_function_of_fresh_entropy_alone(monkeypatch, draw):
    drawn = []
    for content in (b"some bytes", b"some bytes", b"others"):
        source = pin(monkeypatch, content)
        drawn.append(draw().tolist())
        assert source.read >= 48
    assert drawn[0] == drawn[1] != drawn[2]
