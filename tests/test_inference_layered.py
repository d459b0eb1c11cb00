"""Layers after an encoder: a bag takes them as its own, another encoder is wrapped."""

import numpy as np
import pytest
from handmade import expect_fits

from xclearn.errors import ModelError
from xclearn.inference.components import Bag, Relu, Residual
from xclearn.inference.hashed import Affine
from xclearn.inference.layered import Layered, layered

BAG = Bag(np.array([[1, -2], [0, 1]], np.float32), [])
ADD = Affine(np.eye(2, dtype=np.float32), np.array([1, 1], np.float32))


def test_a_bag_takes_the_layers_after_its_own():
    bag = layered(layered(BAG, [Relu()]), [ADD])
    assert isinstance(bag, Bag)
    assert bag.encode(np.eye(2, dtype=np.float32)).tolist() == [[2, 1], [1, 2]]


def test_another_encoder_is_wrapped():
    wrapped = layered(Layered(BAG, [Relu()]), [ADD])
    assert isinstance(wrapped, Layered)
    assert (wrapped.dim, wrapped.n_features) == (2, 2)
    assert wrapped.encode(np.eye(2, dtype=np.float32)).tolist() == [[2, 1], [1, 2]]


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="residual"):
        expect_fits(Layered(BAG, [Residual(np.zeros((3, 3), np.float32), np.zeros(3, np.float32))]))
