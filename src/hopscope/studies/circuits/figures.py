"""The figures of the study of circuits."""

from hopscope.studies.chains.figures import Draw
from hopscope.studies.chains.figures import circuits as drawn
from hopscope.studies.chains.figures.gallery import GALLERY, draw_gallery
from hopscope.studies.chains.figures.timeline import TIMELINE, draw_timeline

FIGURES: dict[str, Draw] = {
    drawn.READS: drawn.draw_reads,
    drawn.CONTROLS: drawn.draw_controls,
    drawn.MODES: drawn.draw_modes,
    TIMELINE: draw_timeline,
    GALLERY: draw_gallery,
}
"""Name → how it is drawn."""
