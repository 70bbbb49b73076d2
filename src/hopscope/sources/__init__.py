"""The normalised source of a function or class with all that it uses: what a claim or a task *does*, as text.

Two texts are equal if nothing but comments, docstrings, formatting or the place in a file differs.  What the code uses
is followed as long as it is by the same author: the same module, modules in the same folder, or the same top-level
package (of Hopscope itself only studies, claims and theory, which say what is judged).  What others wrote is named, and
not read.
"""

import hashlib

from hopscope.sources.collection import Collection


def normalised_source(*objects: object) -> str:
    """Return the normalised source of functions, classes or values, with everything of the same author that they use.

    The text begins with the objects themselves; then follows, under its name and sorted by it, every function, class
    and constant that they use, directly or through another.  Defaults, closures and the arguments of partial functions
    count.  Where no source is to be had (code typed into a plain interpreter), bytecode and constants stand in its
    place.

    Args:
        objects: functions, lambdas, methods, partial functions, classes, or values such as configurations.

    Raises:
        UserError: a file holds other code than that which was imported from it.
    """
    collection = Collection()
    texts = [collection.root(each) for each in objects]
    collection.follow()
    return "\n\n".join([*texts, *(f"# {name}\n{text}" for name, text in sorted(collection.found))]) + "\n"


def source_hash(*objects: object) -> str:
    """Return the SHA-256 of `normalised_source`, in hexadecimal digits."""
    return hashlib.sha256(normalised_source(*objects).encode("utf-8", "backslashreplace")).hexdigest()
