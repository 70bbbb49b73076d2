"""What a page may do is what its policy says: its own scripts, each by its hash, and nothing else."""

import re
from base64 import b64encode
from hashlib import sha256

from hopscope.report.page import build_report
from hopscope.report.policy import content_security_policy


def test_every_script_is_known_by_what_a_browser_reads():
    digest = b64encode(sha256(b"let a = 2;\nlet b;\n").digest()).decode()
    for script in ("let a = 2;\nlet b;\n", "let a = 2;\r\nlet b;\r"):
        policy = content_security_policy([script])
        assert f"script-src 'sha256-{digest}';" in policy
    assert content_security_policy(["a", "b"]).count("'sha256-") == 2
    assert "script-src 'none';" in content_security_policy([])


def test_a_page_allows_its_own_scripts_alone(run_path):
    build_report([run_path], run_path / "report.html")
    page = (run_path / "report.html").read_bytes().decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace(
        "&#39;", "'"
    )
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) >= 2
    assert policy == content_security_policy(scripts)
    (allowed,) = re.findall(r"script-src ([^;]*)", policy)
    assert "unsafe" not in allowed and "http" not in policy and "*" not in policy
    assert policy.startswith("default-src 'none';")
