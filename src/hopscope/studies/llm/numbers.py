"""The numbers of the page, each with the key of its place in `llm/answers.json`."""

from collections.abc import Sequence

from hopscope.llm.answers import Share
from hopscope.studies.llm.cells import FILE, Cell
from hopscope.studies.llm.words import short_names
from hopscope.studies.numbers import DASH, PageNumbers, written


class Numbers(PageNumbers):
    """Those of the study of language models; keys can be followed: `cells[3].accuracy.value`."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__()
        self._names = short_names(list(dict.fromkeys(cell.model for cell in cells)))
        self._places = {(cell.model, cell.formulation, cell.depth): n for n, cell in enumerate(cells)}

    def model(self, cell: Cell) -> str:
        """The name of a cell's model, short enough for a table."""
        return self._names[cell.model]

    def key(self, cell: Cell, field: str) -> str:
        """Where a number of a cell stands."""
        return f"cells[{self._places[cell.model, cell.formulation, cell.depth]}].{field}"

    def of(self, cell: Cell, value: float, shown: str, field: str) -> str:
        """A number of a cell, written so."""
        return self.add(value, shown, FILE, self.key(cell, field))

    def count(self, cell: Cell, value: int, field: str) -> str:
        """A count of a cell."""
        return self.of(cell, value, f"{value:,}", field)

    def percent(self, cell: Cell, value: float, field: str) -> str:
        """A share of a cell, in percent."""
        return self.of(cell, value, written(value, percent=True), field)

    def share(self, cell: Cell, field: str, share: Share) -> str:
        """A share of a cell with its interval; a dash where there is nothing to share."""
        if share.value is None or share.low is None or share.high is None:
            return DASH
        low, high = (
            self.of(cell, end, _one_decimal(end), f"{field}.{name}")
            for name, end in (("low", share.low), ("high", share.high))
        )
        return f"{self.percent(cell, share.value, f'{field}.value')} [{low}, {high}]"

    def derived(self, value: float, shown: str, what: str, *cells: Cell) -> str:
        """A number worked out from cells, named by what it is and the places of the cells."""
        places = ", ".join(
            f"cells[{self._places[cell.model, cell.formulation, cell.depth]}]" for cell in cells
        )
        return self.add(value, shown, FILE, f"{what} of {places}")


def _one_decimal(end: float) -> str:
    return f"{100 * end:.1f}"
