import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from sfumato.noise import discrete_laplace, entropy
from sfumato.noise.entropy import KeyStream, draw_word

FORK = """
import os
import numpy as np
from sfumato.noise.entropy import KeyStream

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
