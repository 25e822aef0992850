"""Classes of the other side: what one tells of its own, and the classes of stand-ins that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_envs.sandbox import codec, failures
from llm_envs.sandbox.codec import MalformedError, Tree
from llm_envs.sandbox.extended import make_data_class
from llm_envs.sandbox.plain import BASES, extended_by, fields_of, found, names_of, own_names
from llm_envs.sandbox.remote import SPECIAL, RemoteMeta, make_class, number_of

MOST_CLASSES = 10_000
MOST_NAME = 200
"""Characters of a class's name; more are cut."""


class _Hidden:
    """What the other side has in hand when it names a class that it may not use."""


class Classes:
    """Classes of both sides by number.

    Args:
        parity: 0 or 1, of the numbers of the other side.
        new_number: gives a class of this side its number.
        own: where the objects of this side are found by number.
        attributes: `_remote_…` values that all stand-ins have.
        stay: whether objects of a class of this side that extends plain data or an exception stay here, so that the other side has
            stand-ins for them. If not, they cross as data.
        reveals: whether the other side may use a class that it has only seen as that of an object, or as a base.
    """

    def __init__(
        self,
        parity: int,
        new_number: Callable[[], int],
        own: dict[int, Any],
        attributes: Mapping[str, Any],
        *,
        stay: bool,
        reveals: Callable[[type], bool],
    ) -> None:
        self._parity = parity
        self._new_number = new_number
        self._own = own
        self._attributes = attributes
        self._stay = stay
        self._reveals = reveals
        self._numbers: dict[int, tuple[int, type, type | None]] = {}
        self._learned: dict[int, type] = {}
        self._new: list[Tree] = []
        self._sent: list[Tree] = []

    # ---- of this side ----

    def of_object(self, class_: type) -> Tree:
        """The tree of a class that is shown as that of an object."""
        return ["k", self._described(class_)[0]]

    def tree(self, class_: type) -> Tree:
        """The tree of a class that is shown as that of an exception, or as a base."""
        if isinstance(class_, RemoteMeta):
            return ["y", number_of(class_)]
        if id(class_) in codec.KNOWN_NAMES:
            return ["B", codec.KNOWN_NAMES[id(class_)]]
        return self.of_object(class_)

    def shown(self, class_: type) -> Tree:
        """The tree of a class that is shown for its own sake: the other side may use it."""
        tree = self.tree(class_)
        if tree[0] == "k":
            self._own[tree[1]] = class_
        return tree

    def staying(self, class_: type) -> type | None:
        """The class of plain data that a class of this side extends whose objects stay here."""
        return self._described(class_)[2] if self._stay and id(class_) not in codec.KNOWN_NAMES else None

    def pending(self) -> list[Tree]:
        """Descriptions that the other side has not been sent."""
        self._sent, self._new = self._new, []
        return self._sent

    def take_back(self) -> None:
        """The last descriptions were not sent."""
        self._new = self._sent + self._new

    def _described(self, class_: type) -> tuple[int, type, type | None]:
        """The number of a class, the class, and the plain data that it extends; the other side is told of it if it is new."""
        if id(class_) not in self._numbers:
            base = extended_by(class_) if self._stay else None
            number = self._new_number()
            self._numbers[id(class_)] = (number, class_, base)
            self._own[number] = class_ if self._reveals(class_) else _Hidden
            self._new.append(self._description(class_, number, base))
        return self._numbers[id(class_)]

    def _description(self, class_: type, number: int, base: type | None) -> Tree:
        bases = [self.tree(one) for one in class_.__bases__ if one is not object]
        failure = failures.failure_of(class_)
        like: type = base or (object if failure is None else failures.built_in(failure))
        names = own_names(class_, like, SPECIAL if base is None else names_of(base))
        equal = found(class_, "__eq__") is not found(like, "__eq__")
        fields = [list(fields_of(class_).items())] if base is tuple else []
        return [number, class_.__name__, bases, names, equal, base.__name__ if base is not None else None, failure, *fields]

    # ---- of the other side ----

    def learn(self, resolve: Callable[[Tree], object], description: list[Tree]) -> None:
        """Makes a class of a description.

        Args:
            resolve: gives the value of a tree, for the bases.
            description: from the other side.

        Raises:
            MalformedError: for one that `_description` does not write.
        """
        number, name, bases, names, equal, base, failure, *fields = description
        if len(self._learned) > MOST_CLASSES or number in self._learned or number % 2 != self._parity:
            raise MalformedError(f"a class with the number {number!r}")
        known = tuple(one for one in map(resolve, bases) if isinstance(one, type))
        name, own = name[:MOST_NAME] if name.isidentifier() else "object", frozenset(names)
        attributes = {**self._attributes, "_remote_class_number": number, "_remote_equal": bool(equal)}
        if self._stay and failure is not None:
            self._learned[number] = failures.make_local_class(name, known, failure)
        elif failure is not None:
            self._learned[number] = failures.make_failure_class(name, known, failure, own, attributes)
        elif base is not None:
            self._learned[number] = make_data_class(name, known, BASES[base], own, dict(*fields), attributes)
        else:
            self._learned[number] = make_class(name, known, own, attributes)

    def __getitem__(self, number: int) -> type:
        return self._learned[number]
