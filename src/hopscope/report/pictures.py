"""Every picture of a run as files: its figures, and the graphs of the circuits that its page shows."""

from pathlib import Path

from hopscope.report.circuit_graph import write_circuit_picture
from hopscope.report.circuits import CircuitBlock
from hopscope.report.figures import figure_names, render_figure
from hopscope.report.record import read_run


def render_all(run_path: Path) -> list[Path]:
    """Draw every figure of a run, and every circuit as ``circuit-<member>``; returns the paths written.

    Raises:
        UserError: as `render_figure`, or the story is missing or damaged.
    """
    figures_dir = run_path / "figures"
    drawn = [path for name in figure_names(figures_dir) for path in render_figure(figures_dir, name)]
    blocks = [block for section in read_run(run_path).story.sections for block in section.blocks]
    views = [named.view for block in blocks if isinstance(block, CircuitBlock) for named in block.circuits]
    return drawn + [
        path for view in views for path in write_circuit_picture(view, figures_dir, f"circuit-{view.member}")
    ]
