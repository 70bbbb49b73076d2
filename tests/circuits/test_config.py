"""Under what name a reading is on record."""

from hopscope.circuits.config import MOST_CIRCUITS, ReaderConfig, reading_name


def test_the_usual_reading_keeps_its_name():
    assert reading_name(0, ReaderConfig()) == "circuit-0-6c122fb7410e"
    usual = ReaderConfig(most_circuits=MOST_CIRCUITS, further_orders=0)
    assert reading_name(0, usual) == reading_name(0, ReaderConfig())


def test_another_way_to_read_has_another_name():
    ways = (
        {}, {"most_circuits": 1}, {"orders": 1}, {"further_orders": 1}, {"samples": 7}, {"validation": 11},
        {"threshold": 0.5},
    )  # fmt: skip
    assert len({reading_name(0, ReaderConfig(**way)) for way in ways}) == len(ways)
