"""No bytes from outside make a decoder raise what it does not document: see tests/fuzz."""

import random

import pytest
import seeds
import targets

INPUTS = 200


@pytest.mark.parametrize("target", targets.TARGETS)
def test_real_inputs_and_random_changes_to_them(target):
    begin = seeds.seeds(target)
    assert len(begin) > 10
    rng = random.Random(target)
    for number in range(INPUTS):
        data = begin[number % len(begin)]
        if number >= len(begin):
            data = seeds.mutate(data, begin, rng)
        targets.TARGETS[target](data)
