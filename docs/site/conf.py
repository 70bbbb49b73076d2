"""Builds the documentation as a site that needs no network: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import hopscope

project = "Hopscope"
version = release = hopscope.__version__

# The sources are the Markdown files where they stand, so that their links work on a code host too.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "contents", "folders"]
root_doc = "docs/index"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "notebooks/README.md"),
    *("docs/*.md", "docs/api/*.md", "docs/results/README.md", "notebooks/*.ipynb"),
]
# Not even looked through: they hold many thousand files.
exclude_patterns = [".venv", "build", "dist", "runs"]

# Notebooks are shown as they are written: their tests run them, and training takes minutes.
nb_execution_mode = "off"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Hopscope"
html_theme_options = {"navigation_with_keys": True}
html_show_copyright = False
html_copy_source = False
# Pages that are opened from disk may not fetch others, which a summary of each hit would need.
html_show_search_summary = False

default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
# Shapes in annotations are no reStructuredText: "*member batch position".
napoleon_attr_annotations = False
