"""nnsight traces a member by the names of TransformerLens, and gets what `member.cache` has."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.export import export_module
from hopscope.models.nnsight import RENAME, SiteModules, to_nnsight
from hopscope.models.sites import PREDICTIONS, site_names
from hopscope.tasks.batch import Batch

from .samples import VARIANTS, config, inputs, lively
from .test_export_nnsight import require, run_worker

WORKER = Path(__file__).with_name("nnsight_names_worker.py")
MEMBER, HEAD = 1, 2
NAMES = ["as it is", "post-norm", "vectors that carry positions"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An export of each configuration, beside what nnsight saw in it."""
    require(find_spec("nnsight") is not None, os.environ)
    found = {}
    for name in NAMES:
        module, folder = member(name), tmp_path_factory.mktemp("member")
        export_module(module, folder, {"step": 5})
        np.savez(folder / "in.npz", inputs=inputs(module.config)[MEMBER].numpy(), head=HEAD)
        found[name] = folder
    run_worker(WORKER, found.values())
    return found


def member(name):
    return lively(config(**VARIANTS[name])).member(MEMBER)


def traced(folder, kind):
    return {name: torch.from_numpy(array) for name, array in np.load(folder / f"{kind}.npz").items()}


@pytest.mark.extras
@pytest.mark.parametrize("name", NAMES)
def test_every_site_has_the_name_the_shape_and_the_value_of_the_cache(folders, name):
    module, found = member(name), traced(folders[name], "sites")
    given = inputs(module.config)[MEMBER]
    cache = module.cache(given)
    assert [site for site in found if site in cache] == site_names(module.config)[:-1]
    for site in found.keys() & cache.keys():
        assert torch.equal(found[site], cache[site]), site
    with torch.no_grad():
        assert torch.equal(found["output"], module(given))


@pytest.mark.extras
@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_in_place_goes_on(folders, name):
    module, found = member(name), traced(folders[name], "sites")
    given = inputs(module.config)[MEMBER]
    rows = list(module.config.readout_positions)
    asked = Batch(inputs=given, targets=torch.zeros(len(given), 1, dtype=torch.long))

    def without(z):
        z = z.clone()
        z[:, :, HEAD] = 0.0
        return z

    changes = {
        "without_head": {"blocks.1.attn.hook_z": without},
        "replaced_pattern": {"blocks.1.attn.hook_pattern": lambda pattern: torch.full_like(pattern, 0.125)},
    }
    for kind, change in changes.items():
        torch.testing.assert_close(found[kind][:, rows], module.intervene(asked, change), rtol=0, atol=1e-6)
        assert (found[kind] - found["output"]).abs().max() > 0.01


@pytest.mark.extras
@pytest.mark.parametrize("name", NAMES)
def test_modules_by_their_names_hold_what_the_table_says(folders, name):
    module, found = member(name), traced(folders[name], "renamed")
    given = inputs(module.config)[MEMBER]
    cache = module.cache(given)
    assert len(found) > 6 * module.config.layers
    for site in found.keys() - {"output"}:
        expected = cache[site].flatten(-2) if cache[site].ndim == 4 else cache[site]
        torch.testing.assert_close(found[site], expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(found["output"], module(given))


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_hook_points_change_nothing_and_stand_where_their_names_say(name):
    module = lively(config(**VARIANTS[name])).member(0)
    given = inputs(module.config)[0]
    sites = SiteModules(module)
    assert torch.equal(sites(given), module(given))
    names = dict(sites.named_modules())
    assert set(site_names(module.config)) - {PREDICTIONS} <= names.keys()
    assert {key.removeprefix("member.") for key in sites.state_dict()} == set(module.state_dict())


def test_the_map_names_modules_that_members_have():
    own = {path for path, _ in member("as it is").named_modules()}
    for path in RENAME:
        assert any(each == path or each.endswith(f".{path}") for each in own), path
    assert len(set(RENAME.values())) == len(RENAME)


def test_without_nnsight_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "nnsight", None)
    with pytest.raises(UserError, match=r"pip install 'hopscope\[nnsight\]'"):
        to_nnsight(member("as it is"))
