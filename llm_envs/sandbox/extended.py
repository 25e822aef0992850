"""Stand-ins for objects whose class extends plain data: the data is here, what the class adds is there.

Such a stand-in *is* plain data: a number, a text, a list. What plain data can do is done here, on that data: it equals, orders,
counts, is searched and written as JSON like it, and no solution hears what it is compared with. What the class adds (attributes,
methods, what `str`, `repr` and `format` say of it) is asked of the object. If the tests name the class, they want what it makes
of the methods of plain data, too: of all but comparisons and operators with the tests' values.
"""

from __future__ import annotations

import collections
import datetime
import types
from collections.abc import Callable
from typing import Any

from llm_envs.sandbox import codec
from llm_envs.sandbox.codec import MalformedError
from llm_envs.sandbox.plain import built, found, is_field, names_of, plain
from llm_envs.sandbox.remote import (
    COMPARISONS,
    OPERATORS,
    SPECIAL,
    Remote,
    RemoteMeta,
    There,
    asked_by_tests,
    extend,
    forward,
    is_object,
    methods_of,
    numbered,
)

_TEXTS = frozenset(("__str__", "__repr__", "__format__"))
_ARITHMETIC = frozenset(OPERATORS)
# What a stand-in is whatever it extends.
_ITS_OWN = frozenset((
    *("__class__", "__dict__", "__doc__", "__module__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__dir__"),
    *("__getattribute__", "__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__getstate__", "__copy__", "__deepcopy__"),
    *("__getnewargs__", "__class_getitem__", "__slots__", "__weakref__", "__sizeof__", "__abstractmethods__"),
))  # fmt: skip


def make_data_class(
    name: str,
    bases: tuple[type, ...],
    base: type,
    own: frozenset[str],
    fields: dict[str, int],
    attributes: dict[str, Any],
) -> RemoteMeta:
    """A class of stand-ins that extends a class of plain data.

    Args:
        name: as it is shown.
        bases: stand-ins for the bases.
        base: class of plain data.
        own: names of plain data that have a meaning of their own there; others than `plain.names_of` are passed over.
        fields: positions of what it reads from the tuple, by name.
        attributes: `_remote_…` values of the class.
    """
    own &= names_of(base)
    names = _data_methods(base)
    if "__hash__" in own and names["__hash__"] is None:
        names["__hash__"] = _hash  # a container that can be in a set: equal ones have one hash
    added = frozenset(name for name in own & SPECIAL if name not in names)
    names |= methods_of(added | own & _TEXTS)
    names |= {name: _Value(name, names[name]) for name in own - SPECIAL - COMPARISONS if callable(names[name])}
    if base is collections.defaultdict:
        names["__missing__"] = _missing("__missing__" in own)
    names |= _fields(bases, base, fields)
    data = {"_remote_base": base, "_remote_data": True, "_remote_trusted": False, "_remote_own": own, "_remote_fields": fields}
    # As that of `Remote`: the language would put its own here.
    made = extend(name, bases, (base,), {**attributes, **names, **data, "__dict__": vars(Remote)["__dict__"]})
    if made._remote_operators or any(
        one._remote_data and one._remote_trusted for one in made.__mro__ if isinstance(one, RemoteMeta)
    ):
        trust(made)
    return made


def trust(value: object) -> None:
    """Lets a class of the solution that the tests name say what its own methods do, those of plain data too.

    Equality of its objects may become narrower by that and never wider; data of the tests is still compared here alone.
    """
    if not (isinstance(value, RemoteMeta) and value._remote_data):
        return
    base: Any = value._remote_base
    own: frozenset[str] = value._remote_own
    plainly = _data_methods(base)
    methods: dict[str, Any] = {name: forward(name) for name in own & SPECIAL - _ARITHMETIC - COMPARISONS}
    methods |= {name: _operator(name, plainly.get(name)) for name in own & _ARITHMETIC}
    methods |= {name: _Named(name, plainly[name]) for name in own - SPECIAL - COMPARISONS}
    if "__contains__" in own:
        methods["__contains__"] = _contains(plainly.get("__contains__"))
    methods |= {name: _compared(name, plainly[name], asked) for name, asked in (("__eq__", True), ("__ne__", False)) if name in own}
    for name, method in {**methods, "_remote_trusted": True}.items():
        type.__setattr__(value, name, method)


def make_data(class_: RemoteMeta, number: int, value: object) -> Remote:
    """A stand-in for an object with this data.

    Args:
        class_: of the stand-in.
        number: of the object.
        value: of the class of plain data that it extends; of a container nothing, it is filled later.

    Raises:
        MalformedError: the data is none of that class.
    """
    base: Any = class_._remote_base
    if type(value) is not base:
        raise MalformedError(f"data of {type(value).__name__} for a class that extends {base.__name__}")
    return numbered(built(class_, base, value), number)


def make_container(class_: RemoteMeta, number: int, kind: str, more: codec.Tree) -> Remote:
    """A stand-in for an object that is an empty container.

    Args:
        class_: of the stand-in.
        number: of the object.
        kind: of container.
        more: what `codec.extra` says of it.
    """
    base: Any = class_._remote_base
    made = base.__new__(class_)
    like: Any = codec.empty(kind, more)
    if kind == "deque":
        base.__init__(made, (), like.maxlen)
    elif kind == "defaultdict":
        base.__init__(made, like.default_factory)
    return numbered(made, number)


def _data_methods(base: Any) -> dict[str, Any]:
    """All that plain data has, for a class that may have other bases as well: those must not come first."""
    names: dict[str, Any] = {name: found(base, name) for name in dir(base) if name not in _ITS_OWN}
    if "__len__" in names and "__bool__" not in names:
        names["__bool__"] = lambda self: base.__len__(self) > 0
    if base in (str, bytes, bytearray):
        names |= {f"__{kind.__name__}__": _converted(kind) for kind in (int, float, complex)}
    if issubclass(base, datetime.date):
        names |= {name: _replaced(names[name]) for name in ("replace", "__replace__") if name in names}
    operators = (_ARITHMETIC | COMPARISONS) & names.keys()
    if not issubclass(base, datetime.date):
        operators = {name for name in operators if isinstance(names[name], types.FunctionType) and not name.startswith("__i")}
    # Those of dates make another object of their class, and those of `Counter`, in Python, go by methods that it may have changed.
    return names | {name: _on_copy(names[name]) for name in operators}


def _fields(bases: tuple[type, ...], base: type, fields: dict[str, int]) -> dict[str, There]:
    """What reads a named tuple's fields: these of the data here, and those of its bases that it no longer has over there."""
    for name, position in fields.items():
        if base is not tuple or not is_field(name) or type(position) is not int or position < 0:
            raise MalformedError(f"a field {name!r} at {position!r}")
    known = {name for one in bases if isinstance(one, RemoteMeta) for name in one._remote_fields}
    return {name: There(name) for name in known} | {name: _Field(name, position) for name, position in fields.items()}


class _Field(There):
    def __init__(self, name: str, position: int) -> None:
        super().__init__(name)
        self.position = position

    def __get__(self, stand_in: Any, class_: RemoteMeta) -> Any:
        return super().__get__(stand_in, class_) if stand_in is None else tuple.__getitem__(stand_in, self.position)


def _converted(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda self: kind(plain(self))


def _replaced(method: Callable[..., Any]) -> Callable[..., Any]:
    """What makes another object of the class without calling it: that is made there, and is it only if it has the right data."""

    def replace(self: Remote, *args: object, **options: object) -> Any:
        data = method(plain(self), *args, **options)
        made = self._remote_ask("replace", self._remote_number, args, tuple(options.items()))
        return made if type(made) is type(self) and repr(plain(made)) == repr(data) else data

    return replace


def _missing(own: bool) -> Callable[[Any, object], Any]:
    """What a key gives that is not there: asked, unless it is only made by a class that both sides have."""
    there, here = forward("__missing__"), collections.defaultdict.__missing__
    return lambda self, key: there(self, key) if own or self.default_factory is None else here(self, key)


def _on_copy(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: method(plain(self), *args)


def _hash(self: Remote) -> int:
    return hash(self._remote_class_number)


class _Value(There):
    """A name that is a method of plain data, and may be a value there (a field called `count`); another method does not count."""

    def __init__(self, name: str, plainly: object) -> None:
        super().__init__(name)
        self.plain: Any = plainly

    def __get__(self, stand_in: Remote | None, class_: RemoteMeta) -> Any:
        value = super().__get__(stand_in, class_)
        return self.plain.__get__(stand_in, class_) if callable(value) else value


class _Named(_Value):
    """A name of plain data that means what the class says to the tests' own code, and what the data says to a library.

    `assertSetEqual` asks for `first.difference(second)`: whoever answers that, decides.
    """

    def __get__(self, stand_in: Remote | None, class_: RemoteMeta) -> Any:
        if asked_by_tests(1):
            return There.__get__(self, stand_in, class_)
        return super().__get__(stand_in, class_) if callable(self.plain) else self.plain.__get__(stand_in, class_)


def _compared(name: str, plainly: Any, asked: bool) -> Callable[..., Any]:
    """`==` or `!=`: two objects of the solution are asked if their data says so, that is if the answer of data is `asked`."""

    def method(self: Remote, other: object) -> Any:
        answer = plainly(self, other)
        if answer is asked and is_object(other) and other is not self:
            if self._remote_busy:
                return not asked
            return self._remote_ask("compare", self._remote_number, name, other) is True
        return answer

    method.__name__ = name
    return method


def _contains(plainly: Callable[..., bool] | None) -> Callable[..., bool]:
    def contains(self: Any, value: object) -> bool:
        if self._remote_operators or is_object(value):
            return bool(self._remote_ask("contains", self._remote_number, value))
        return any(entry is value or entry == value for entry in iter(self)) if plainly is None else plainly(self, value)

    contains.__name__ = "__contains__"
    return contains


def _operator(name: str, plainly: Any) -> Callable[..., Any]:
    def method(self: Remote, *args: object) -> Any:
        if self._remote_operators or all(map(is_object, args)):
            return self._remote_ask("special", self._remote_number, name, args)
        return NotImplemented if plainly is None else plainly(self, *args)

    method.__name__ = name
    return method
