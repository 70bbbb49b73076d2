"""What is possible: how many layers information needs, and the lowest losses that an ideal observer reaches."""

from hopscope.theory.information_flow import Mask as Mask
from hopscope.theory.information_flow import Order as Order
from hopscope.theory.information_flow import Span as Span
from hopscope.theory.information_flow import bound_layers as bound_layers
from hopscope.theory.information_flow import exact_layers as exact_layers
from hopscope.theory.information_flow import exact_layers_single_target as exact_layers_single_target
from hopscope.theory.information_flow import held_pieces as held_pieces
from hopscope.theory.information_flow import layers_per_step as layers_per_step
from hopscope.theory.information_flow import pair_order as pair_order
from hopscope.theory.information_flow import theorem_bound as theorem_bound
from hopscope.theory.posteriors import blind_to_repeats_floor as blind_to_repeats_floor
from hopscope.theory.posteriors import elimination_floor as elimination_floor
from hopscope.theory.posteriors import training_floor as training_floor
from hopscope.theory.posteriors import unbound_repeats_floor as unbound_repeats_floor
