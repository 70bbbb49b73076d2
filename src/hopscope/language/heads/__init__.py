"""Which heads of somebody else's model retrieve: what they attend to, and what is lost without them."""

from hopscope.language.heads.scoring import score as score
