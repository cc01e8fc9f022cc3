"""A query that is interrupted: a key pressed in the main thread, a failure like any other in a worker."""

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

import sfumato as sf
from sfumato.core.engine.encode import hide_failures


def interrupt():
    with hide_failures("the table"):
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")


def test_in_the_main_thread_it_is_the_key_that_was_pressed():
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_in_a_worker_it_is_an_error_that_ends_no_loop():
    with ThreadPoolExecutor(1) as pool, pytest.raises(sf.SourceError, match="interrupted"):
        pool.submit(interrupt).result()
