"""The test methods of `unittest` as checks, one at a time."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox.outcomes import Skipped, caught


class _Result(unittest.TestResult):
    """Keeps the first exception of a test, whatever kind of failure `unittest` takes it for."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.skipped_because: str | None = None

    def _keep(self, error: Any) -> None:
        if self.error is None and error is not None:
            self.error = error[1]

    def addError(self, test: object, err: Any) -> None:  # noqa: N802
        self._keep(err)

    def addFailure(self, test: object, err: Any) -> None:  # noqa: N802
        self._keep(err)

    def addSubTest(self, test: object, subtest: object, err: Any) -> None:  # noqa: N802
        self._keep(err)

    def addSkip(self, test: object, reason: str) -> None:  # noqa: N802
        self.skipped_because = reason

    def addUnexpectedSuccess(self, test: object) -> None:  # noqa: N802
        self.error = AssertionError("passed, but was expected to fail")


class Suite:
    """Runs tests in the order of `names`, with the fixtures of their classes."""

    def __init__(self) -> None:
        self._ready: type[unittest.TestCase] | None = None

    def names(self, namespace: dict[str, Any]) -> list[str]:
        """`Class.method` for every test of the classes in a namespace; classes as defined, methods as `unittest` sorts them."""
        loader = unittest.TestLoader()
        return [f"{name}.{method}" for name, class_ in cases(namespace).items() for method in loader.getTestCaseNames(class_)]

    def test(self, name: str) -> Callable[[dict[str, Any]], None]:
        """A function that runs the test of that name in a namespace and raises what it raised."""
        class_name, _, method = name.partition(".")

        def run(namespace: dict[str, Any]) -> None:
            classes = cases(namespace)
            class_ = classes[class_name]
            if self._ready is not class_:
                self._leave(classes)
                class_.setUpClass()
                self._ready = class_
            result = _Result()
            class_(method).run(result)
            if result.error is not None:
                raise result.error
            if result.skipped_because is not None:
                raise Skipped(result.skipped_because)

        return run

    def _leave(self, classes: dict[str, type[unittest.TestCase]]) -> None:
        """Ends the fixtures of the last class, unless they went with a solution that was ended."""
        left, self._ready = self._ready, None
        if left is not None and classes.get(left.__name__) is left:
            # Its failure would be that of no test.
            caught(left.tearDownClass)
            caught(left.doClassCleanups)


def cases(namespace: dict[str, Any]) -> dict[str, type[unittest.TestCase]]:
    """The classes of tests in a namespace, by name; imported ones are none of its own."""
    return {
        name: value
        for name, value in namespace.items()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == namespace.get("__name__")
    }
