"""The experiments: one package for each built-in study, and what makes a declared study run."""

from hopscope.studies.loading import find_study as find_study
from hopscope.studies.loading import study_names as study_names
