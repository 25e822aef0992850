"""Two processes' view of the same values: what each has shown to the other, by number.

Lists, mappings and sets that cross are *shared* (see `sharing`): both sides have one. Objects, functions and classes stay where
they are and get a stand-in on the other side.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox import codec, failures
from llm_envs.sandbox.classes import Classes
from llm_envs.sandbox.codec import MalformedError, NotPlainError, Tree
from llm_envs.sandbox.extended import make_container, make_data
from llm_envs.sandbox.outcomes import text_of
from llm_envs.sandbox.plain import plain, plain_base
from llm_envs.sandbox.remote import Remote, RemoteMeta, make, number_of
from llm_envs.sandbox.sharing import Sharing, dump

_STEADY = frozenset((type(None), bool, int, float, complex, str, bytes))

# Of all that a message can say; `SyntaxError` of names that are the same for the language.
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError, SyntaxError)


def _counted_alone() -> int:
    lone = {0: []}
    return sys.getrefcount(lone[0])


class Mirror:
    """Writes messages and reads those of the other side.

    The judge's side lets go of shared containers that nobody else there has, and tells the other. Objects whose class extends
    plain data stay on the solution's side, and the judge has stand-ins that are that data; those of the judge cross as data alone,
    because a solution could have a text of its own format what the tests' class leads to.

    Args:
        ask: sends a question about an object of the other side.
        judges: whether this is the judge's side. Each side numbers what it shows, the judge with odd numbers.
        operators: see `remote`.
        reveals: whether the other side may use a class that it has only seen as that of an object, or as a base.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        *,
        judges: bool,
        operators: bool,
        reveals: Callable[[type], bool] = lambda class_: True,
    ) -> None:
        self._judges = judges
        self._next = 1 if judges else 2
        self._parity = self._next % 2
        self._own: dict[int, Any] = {}
        self._own_numbers: dict[int, int] = {}
        self._trees: dict[int, Tree] = {}  # of those of `_own` whose tree stays what it is
        self._stand_ins: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._kept: dict[int, Any] = {}  # stand-ins that are numbers or tuples: the language has no weak references to those
        self._alone = _counted_alone()
        self._dropped: list[int] = []
        self._busy: list[None] = []
        common = {"_remote_ask": staticmethod(ask), "_remote_operators": operators, "_remote_dropped": self._dropped}
        common |= {"_remote_judged": judges, "_remote_busy": self._busy}
        self._classes = Classes(1 - self._parity, self._number, self._own, common, stay=not judges, reveals=reveals)
        self._sharing = Sharing(self._pack, self._unpack, steady=self._steady, busy=self._busy, forgets=judges)
        self.changed = False
        """Whether the last message told of containers that are new or have changed."""

    # ---- writing ----

    def write(self, body: tuple[object, ...]) -> str:
        """The text of a message."""
        self._sharing.begin()
        tree = self._pack(body)
        changed, forgotten = self._sharing.changes()
        self._let_go()
        self.changed = bool(changed)
        dropped, self._dropped[:] = forgotten + self._dropped, []
        return f"[{dump(tree)},[{','.join(changed)}],{dump(self._classes.pending())},{dump(dropped)}]"

    def take_back(self) -> None:
        """Forgets what the last message would have shown: it was not sent."""
        self._classes.take_back()
        self._sharing.take_back()

    def _let_go(self) -> None:
        """Forgets stand-ins that nobody else has; one after those that it is in."""
        for number in reversed(list(self._kept)):
            if sys.getrefcount(self._kept[number]) <= self._alone:
                del self._kept[number]

    def _pack(self, value: object) -> Tree:
        return codec.pack(value, self._refer)

    def _refer(self, value: object) -> Tree:
        """The tree of a value that is no immutable plain data."""
        if isinstance(value, Remote):
            return ["y", number_of(value)]
        if isinstance(value, type):
            return self._classes.shown(value)
        if id(value) in codec.KNOWN_NAMES:
            return ["B", codec.KNOWN_NAMES[id(value)]]
        class_ = type(value)
        base = self._classes.staying(class_)
        if base is not None:
            return self._extended(value, class_, base)
        kind = codec.container_kind(class_)
        if kind is not None:
            return ["S", self._share(value, kind)]
        if isinstance(value, BaseException):
            return self._failure(value)
        if isinstance(value, tuple) and class_.__bases__ == (tuple,) and hasattr(class_, "_fields"):
            columns = list(vars(class_)["_fields"])
            return ["N", class_.__name__, columns, *map(self._pack, tuple.__iter__(value))]
        if plain_base(class_) is not None:
            return self._pack(plain(value))
        return ["o", self._show(value), self._classes.of_object(class_)]

    def _extended(self, value: object, class_: type, base: type) -> Tree:
        """The tree of an object that stays here and whose data crosses, too."""
        number = self._show(value)
        if number in self._trees:
            return self._trees[number]
        class_tree, kind = self._classes.of_object(class_), codec.container_kind(base)
        if kind is None:
            data = plain(value)
            tree = ["p", number, class_tree, self._pack(data)]
            if self._steady(data):
                self._trees[number] = tree
            return tree
        if number not in self._sharing:
            self._sharing.show(number, value, kind, class_tree)
        return ["p", number, class_tree, None]

    def _steady(self, value: object) -> bool:
        """Whether the tree of a value that has been packed stays what it is while something here has the value."""
        kind = type(value)
        if kind is tuple:
            return all(map(self._steady, value))  # type: ignore[call-overload]
        return kind in _STEADY or isinstance(value, Remote) or self._own_numbers.get(id(value)) in self._trees

    def _share(self, value: object, kind: str) -> int:
        number = self._sharing.number_of(value)
        if number is None:
            number = self._number()
            self._sharing.show(number, value, kind)
        return number

    def _number(self) -> int:
        number, self._next = self._next, self._next + 2
        return number

    def _show(self, value: object) -> int:
        number = self._own_numbers.get(id(value))
        if number is None:
            number = self._number()
            self._own[number] = value
            self._own_numbers[id(value)] = number
        return number

    def _failure(self, error: BaseException) -> Tree:
        """The tree of an exception: its class, arguments, text, line and attributes; of one that stays here its number as well."""
        class_tree, text, line = self._classes.tree(type(error)), text_of(error), failures.line_of(error)
        # A group wants its exceptions at once; a list would be filled later.
        args = tuple(tuple(one) if isinstance(error, failures.GROUP) and type(one) is list else one for one in error.args)
        args_tree = self._pack(tuple(self._simple(value) for value in args))
        if not self._judges and id(type(error)) not in codec.KNOWN_NAMES:
            return ["E", self._show(error), class_tree, args_tree, text, line]
        attributes = {name: self._simple(value) for name, value in vars(error).items() if not name.startswith("_")}
        return ["e", class_tree, args_tree, text, line, self._pack(tuple(attributes.items()))]

    def _simple(self, value: object) -> object:
        """The value if it can be written, otherwise its text."""
        try:
            self._pack(value)
        except NotPlainError as error:
            return f"<{type(value).__name__}: {error}>"
        return value

    # ---- reading ----

    def read(self, text: str) -> tuple[Any, ...]:
        """The body of a message.

        Raises:
            MalformedError: it is none.
        """
        self._busy.append(None)
        try:
            body, changed, classes, dropped = json.loads(text)
            for description in classes:
                self._classes.learn(self._unpack, description)
            for number, kind, more, _, *class_trees in changed:
                if number not in self._sharing:
                    self._accept(number, kind, more, *class_trees)
            self._sharing.refill(changed)
            for number in dropped:
                self._drop(number)
            value = self._unpack(body)
        except _UNREADABLE as error:
            raise MalformedError(f"{type(error).__name__}: {error}"[:300]) from None
        finally:
            self._busy.pop()
        if not (isinstance(value, tuple) and value and isinstance(value[0], str)):
            raise MalformedError("neither a question nor an answer")
        return value

    def own(self, number: object) -> Any:
        """The object of this side that has a number.

        Raises:
            MalformedError: no such object was shown.
        """
        if number not in self._own:
            raise MalformedError(f"no object {number!r} was shown")
        return self._own[number]  # type: ignore[index]

    def _unpack(self, tree: Tree) -> object:
        return codec.unpack(tree, self._resolve)

    def _accept(self, number: int, kind: str, more: Tree, class_tree: Tree = None) -> None:
        self._check(number, "a container")
        if class_tree is None:
            self._sharing.accept(number, codec.empty(kind, more), kind)
        else:
            class_ = self._stand_in_class(class_tree)
            if class_._remote_base is not codec.CONTAINERS[kind]:
                raise MalformedError(f"a {kind} whose class extends something else")
            self._sharing.accept(number, make_container(class_, number, kind, more), kind)

    def _drop(self, number: int) -> None:
        self._sharing.drop(number)
        if number in self._own and not isinstance(self._own[number], type):
            del self._own_numbers[id(self._own.pop(number))]
            self._trees.pop(number, None)

    def _resolve(self, tag: str, rest: list[Tree]) -> object:
        if tag == "S":
            return self._sharing[rest[0]]
        if tag == "y":
            return self.own(rest[0])
        if tag == "k":
            return self._classes[rest[0]]
        if tag == "e":
            class_tree, args, text, line, attributes = rest
            return failures.make_local(self._unpack(class_tree), self._unpack(args), text, line, self._unpack(attributes))
        if tag in ("o", "p", "E"):
            return self._stand_in(tag, *rest)
        raise MalformedError(f"a tag {tag!r}")

    def _stand_in(self, tag: str, number: int, class_tree: Tree, *data: Tree) -> object:
        known = self._kept.get(number)
        known = self._stand_ins.get(number) if known is None else known
        if known is not None:
            return known
        self._check(number, "an object")
        class_ = self._stand_in_class(class_tree)
        if tag == "p" and number in self._sharing:
            stand_in = self._sharing[number]
            if type(stand_in) is not class_:
                raise MalformedError("a container of another class")
            return stand_in
        stand_in = self._made(tag, class_, number, data)
        if class_.__weakrefoffset__:
            self._stand_ins[number] = stand_in
        else:
            self._kept[number] = stand_in
        if number in self._dropped:
            self._dropped.remove(number)
        return stand_in

    def _made(self, tag: str, class_: RemoteMeta, number: int, data: tuple[Tree, ...]) -> object:
        """A stand-in whose tag says what it should be, for its class may say something else."""
        if tag == "E" and issubclass(class_, BaseException):
            args, text, line = data
            return failures.make_failure(class_, number, self._unpack(args), text, line)
        if tag == "p" and class_._remote_data:
            (tree,) = data
            return make_data(class_, number, self._unpack(tree))
        if tag == "o" and class_._remote_base is None:
            return make(class_, number)
        raise MalformedError("an object whose class is of another kind")

    def _stand_in_class(self, tree: Tree) -> RemoteMeta:
        class_ = self._unpack(tree)
        if not isinstance(class_, RemoteMeta):
            raise MalformedError("an object whose class is no class of objects")
        return class_

    def _check(self, number: object, what: str) -> None:
        if not isinstance(number, int) or number % 2 == self._parity:
            raise MalformedError(f"{what} with the number {number!r}")
