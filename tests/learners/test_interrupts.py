"""Guards where Ctrl-C is held back and let through: nested blocks, a second one, other threads, other handlers."""

from __future__ import annotations

import signal
import threading

import pytest

from learners.interrupts import interruptible, shielded


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        ctrl_c()
        done.append("rest")
    assert done == ["rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_outermost_block_decides():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        with shielded():
            ctrl_c()
        done.append("between")
        with shielded():
            done.append("second")
    assert done == ["between", "second"]


def test_an_interruptible_part_lets_it_through():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        with interruptible():
            ctrl_c()
            done.append("never")
        done.append("never")
    assert done == []


def test_one_that_has_waited_is_let_through_as_such_a_part_begins():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        ctrl_c()
        done.append("before")
        with interruptible():
            done.append("never")
    assert done == ["before"]


def test_a_block_within_an_interruptible_part_holds_it_back_again():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded(), interruptible():
        with shielded():
            ctrl_c()
            done.append("rest")
        done.append("never")
    assert done == ["rest"]


def test_a_second_one_waits_no_longer():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        ctrl_c()
        done.append("first")
        ctrl_c()
        done.append("never")
    assert done == ["first"]


def test_nothing_is_left_behind():
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), shielded():
            ctrl_c()
    with pytest.raises(ZeroDivisionError), shielded(), interruptible():
        raise ZeroDivisionError
    with shielded():
        pass
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_shield_an_interruptible_part_is_nothing():
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def handled():
    """Signals that a program's own handler was told of."""
    told: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    yield told
    signal.signal(signal.SIGINT, before)


def test_a_programs_own_handler_is_told_later_and_kept(handled):
    own = signal.getsignal(signal.SIGINT)
    with shielded():
        ctrl_c()
        assert handled == []
    assert handled == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_where_it_is_ignored_it_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with shielded(), interruptible():
            ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_no_affair_of_it():
    """They can set no handler, and their blocks must not open or close those of the main thread."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with shielded(), interruptible():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        thread.start()
        assert inside.wait(10)
        ctrl_c()
        done.append("held")
    leave.set()
    thread.join()
    assert done == ["held"]
