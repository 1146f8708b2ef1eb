"""Finds the first of thousands of rows with enough of everything, without a look at each."""

from __future__ import annotations

from collections.abc import Iterator

Amounts = tuple[float, ...]


class FirstFit:
    """Rows of amounts, in a tree whose inner nodes hold the maxima of the rows below.

    Worked example, with rows of two amounts::

        >>> rows = FirstFit(2)
        >>> for amounts in [(4.0, 0.0), (1.0, 1.0), (4.0, 2.0)]:
        ...     _ = rows.append(amounts)
        >>> list(rows.having((2.0, 0.0))), list(rows.having((1.0, 1.0)))
        ([0, 2], [1, 2])
        >>> rows.put(0, (0.0, 0.0))
        >>> next(rows.having((2.0, 0.0)))
        2

    The time to change a row, or to find the first one, grows with the logarithm of the number of
    rows. A search takes longer if many rows have enough of each amount, but none of all.

    Args:
        width: The number of amounts in a row.
    """

    def __init__(self, width: int) -> None:
        self._nothing: Amounts = (-1.0,) * width
        self._leaves = 1
        self._count = 0
        # Node i has the children 2 i and 2 i + 1; node 1 is the root.
        self._nodes: list[Amounts] = [self._nothing] * 2

    def append(self, amounts: Amounts) -> int:
        """Add a row after all others, and return its number."""
        if self._count == self._leaves:
            rows = self._nodes[self._leaves :]
            self._leaves *= 2
            self._nodes = [self._nothing] * (2 * self._leaves)
            self._nodes[self._leaves : self._leaves + len(rows)] = rows
            for node in range(self._leaves - 1, 0, -1):
                self._nodes[node] = _most(self._nodes[2 * node], self._nodes[2 * node + 1])
        self._count += 1
        self.put(self._count - 1, amounts)
        return self._count - 1

    def put(self, row: int, amounts: Amounts) -> None:
        """Replace the amounts of a row."""
        nodes, node = self._nodes, self._leaves + row
        nodes[node] = amounts
        while node > 1:
            node //= 2
            most = _most(nodes[2 * node], nodes[2 * node + 1])
            if nodes[node] == most:
                return
            nodes[node] = most

    def drop(self, row: int) -> None:
        """Make sure that a row is never found again."""
        self.put(row, self._nothing)

    def having(self, wanted: Amounts) -> Iterator[int]:
        """Yield the rows that have at least these amounts, in order.

        The rows must not change meanwhile.

        Args:
            wanted: As many amounts as a row has, none of them below 0.
        """
        stack = [1]
        while stack:
            node = stack.pop()
            for free, needed in zip(self._nodes[node], wanted, strict=True):
                if free < needed:
                    break
            else:
                if node >= self._leaves:
                    yield node - self._leaves
                else:
                    stack += (2 * node + 1, 2 * node)


def _most(one: Amounts, other: Amounts) -> Amounts:
    return tuple(map(max, one, other))
