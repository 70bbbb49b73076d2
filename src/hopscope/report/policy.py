"""What a page may do: the Content-Security-Policy that it carries.

A page shows words and data of runs that somebody else may have made.  Everything is escaped; the policy is the second
lock.  Only the scripts that the page was built with may run, each known by its SHA-256; nothing may become a script
later (no `eval`, no script element or attribute that words or data bring along), and nothing may be asked of a network.
Styles are free: the charts' libraries set them.
"""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256

_REST = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def content_security_policy(scripts: Iterable[str]) -> str:
    """The policy of a page.

    Args:
        scripts: the text of every script element, exactly as it stands between its tags.
    """
    known = " ".join(dict.fromkeys(f"'sha256-{_digest(script)}'" for script in scripts))
    return f"default-src 'none'; script-src {known or _NONE}; {_REST}"


_NONE = "'none'"


def _digest(script: str) -> str:
    # A browser reads every end of a line as one character before it hashes.
    read = script.replace("\r\n", "\n").replace("\r", "\n")
    return b64encode(sha256(read.encode()).digest()).decode()
