"""Shapes of the named sites, as the table of `models.sites` gives them."""


def site_shape(name, config, batch):
    """Shape of a site of one member."""
    rows, heads = config.length, config.heads
    short = name.rpartition("hook_")[2]
    if name == "predictions":
        return batch, len(config.readout_positions), config.output_size
    if short in ("q", "k", "v", "z"):
        return batch, rows, heads, config.head_size
    if short in ("attn_scores", "pattern"):
        return batch, heads, rows, rows
    if short in ("pre", "post"):
        return batch, rows, config.mlp_size
    return batch, rows, config.width
