"""What differs between the functions of two keys: the kernel, its helpers, and what their names stand for.

The functions of a key form a graph: a name of one stands for another by its position in the list. Both graphs are
walked side by side from the kernel, so that a helper that moved to another module or position is still compared with
what it was, and a name that stands for something else is told as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritonstore.keys.words import as_list, as_map, change, last_name

__all__ = ["code_changes"]

_Told = Iterator[tuple[str, str]]


def code_changes(old: list[Any], new: list[Any], handed: list[tuple[str, list[Any]]]) -> _Told:
    """(field, phrase) for each difference. `handed` holds the arguments, some of which are functions."""
    walk = _Walk(old, new)
    told = False
    for field, text in walk.pair(0, 0, "kernel"):
        told = True
        yield field, text
    for name, token in handed:
        for position in _functions(token):
            for field, text in walk.pair(position, position, "function", f"the function given to {name}"):
                told = True
                yield field, text
    if not told and any(type(each) is str for each in (*_alike(old), *_alike(new))):
        yield "names", "a function was renamed whose name the kernel can turn into text"
    elif not told and _alike(old) != _alike(new):
        yield "names", "two helpers now share one full name, or no longer do: Triton generates only one of them"


class _Walk:
    def __init__(self, old: list[Any], new: list[Any]) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[int, int]] = set()

    def pair(self, ours: int, theirs: int, role: str, place: str = "") -> _Told:
        """Compare two functions and what they reach. `place` says which name stands for them."""
        if (ours, theirs) in self._seen:
            return
        self._seen.add((ours, theirs))
        before, after = self._node(self._old, ours), self._node(self._new, theirs)
        name, other = _name(before), _name(after)
        same_name = last_name(name) == last_name(other)
        who = f"{role} {last_name(other) or '?'}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            own = list(_own_changes(before, after, who))
            if own and not same_name and place:
                # Not an edit: the name stands for another function, and all else follows from that.
                yield place.rpartition(" ")[2], f"{place}: {last_name(name)} → {last_name(other)}"
                return
            yield from own
            yield from self._names(before, after, who)
        elif as_list(before)[1:2] != as_list(after)[1:2] or type(before) is not type(after):
            yield last_name(other), f"{who} changed"  # described by an older version, by name and digest only

    def _names(self, before: Mapping[str, Any], after: Mapping[str, Any], who: str) -> _Told:
        ours, theirs = _by_name(before), _by_name(after)
        told = False
        inner: list[tuple[int, int, str]] = []
        for mark in dict.fromkeys([*ours, *theirs]):
            left, right = ours.get(mark), theirs.get(mark)
            place, dotted, is_attribute = mark
            kind = (right or left or ("", ""))[1]
            what = f"{kind} {dotted}" if "." not in dotted else f"attribute {dotted}" if is_attribute else dotted
            where = f" in {who}" if place == "body" else f" in a parameter of {who}"
            if left is None or right is None:
                # A plain annotation leaves a token only where it cannot be evaluated, all else where it is defined.
                defined = (left is None) is (place != "annotation")
                told = True
                yield dotted, f"{what} is {'now' if defined else 'no longer'} defined{where}"
                continue
            pair = _position(left[0]), _position(right[0])
            if pair[0] is not None and pair[1] is not None:
                inner.append((pair[0], pair[1], dotted))
            elif _blind(left[0]) != _blind(right[0]):
                told = True
                yield dotted, f"{what} {self._change(left[0], right[0])}{where}"
            else:
                mine, yours = list(_functions(left[0])), list(_functions(right[0]))
                inner += [(a, b, dotted) for a, b in zip(mine, yours, strict=False)]
        for mine_at, yours_at, dotted in inner:
            for field, text in self.pair(mine_at, yours_at, "helper", f"the helper {dotted}"):
                told = True
                yield field, text
        if not told and before.get("all_names") != after.get("all_names") and not self._only_positions(before, after):
            yield last_name(_name(after)), f"a name that {who} uses stands for something else"

    def _only_positions(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Whether the names may differ only by the positions of functions, each of which is compared by itself."""
        ours, theirs = _by_name(before), _by_name(after)
        return any(next(_functions(token[0]), None) is not None for token in [*ours.values(), *theirs.values()])

    def _change(self, before: list[Any], after: list[Any]) -> str:
        ours, theirs = _position(before), _position(after)
        left = last_name(_name(self._node(self._old, ours))) if ours is not None else before
        right = last_name(_name(self._node(self._new, theirs))) if theirs is not None else after
        text = change(left, right)
        for name in (left, right):
            text = text.replace(f"'{name}'", name) if isinstance(name, str) else text
        return text

    @staticmethod
    def _node(nodes: list[Any], position: int) -> Any:
        return nodes[position] if 0 <= position < len(nodes) else None


def _own_changes(before: Mapping[str, Any], after: Mapping[str, Any], who: str) -> _Told:
    """What the function itself says: body, parameters, decorations."""
    field = last_name(_name(after))
    if before.get("body") != after.get("body"):
        yield field, f"{who} changed"
        return
    ours, theirs = _parameters(before), _parameters(after)
    if [*ours] != [*theirs]:
        yield field, f"the parameters of {who} changed"
        return
    told = False
    for name, (constexpr, default) in theirs.items():
        if ours[name][0] != constexpr:
            told = True
            yield name, f"parameter {name} of {who} is {'now' if constexpr else 'no longer'} a constexpr"
        if ours[name][1] != default:
            told = True
            yield name, f"the default of {name} in {who}: {change(ours[name][1], default)}"
    for flag in ("noinline", "must_use"):
        if before.get(flag) != after.get(flag):
            told = True
            yield flag, f"{who} is {'now' if after.get(flag) is True else 'no longer'} {flag}"
    if not told and (
        before.get("written") != after.get("written") or before.get("all_parameters") != after.get("all_parameters")
    ):
        yield field, f"an annotation or default of {who} changed"


def _parameters(node: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    found = [as_list(each) for each in as_list(node.get("parameters"))]
    return {str(each[0]): (each[1], each[2]) for each in found if len(each) == 3}


def _by_name(node: Mapping[str, Any]) -> dict[tuple[str, str, bool], tuple[list[Any], str]]:
    """(place, dotted name, only asked whether it is there) → (token, "global" or "closure variable")."""
    found: dict[tuple[str, str, bool], tuple[list[Any], str]] = {}
    for each in map(as_list, as_list(node.get("names"))):
        if len(each) == 4:
            kind = "closure variable" if each[3] == "closure" else "global"
            token = as_list(each[2])
            found[str(each[0]), str(each[1]), token[:1] == ["has"]] = (token, kind)
    return found


def _name(node: Any) -> str:
    return str(as_map(node).get("name") or (as_list(node) or ["?"])[0])


def _position(token: list[Any]) -> int | None:
    return token[1] if len(token) == 2 and token[0] == "jit" and type(token[1]) is int else None


def _functions(token: Any) -> Iterator[int]:
    """The positions of all functions in a token."""
    if type(token) is list:
        position = _position(token)
        if position is not None:
            yield position
        else:
            for item in token:
                yield from _functions(item)


def _blind(token: Any) -> Any:
    """The token without the positions of functions, and with types that `==` would not tell apart."""
    if type(token) is list:
        return ["jit"] if _position(token) is not None else [_blind(item) for item in token]
    return [type(token).__name__, token]


def _alike(nodes: list[Any]) -> list[Any]:
    return [as_map(node).get("alike") for node in nodes]
