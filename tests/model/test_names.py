"""Every class of rocsolid.model has a name of its own, so that a name means one thing everywhere."""

import importlib
import pkgutil
from collections import defaultdict

from rocsolid import model


def test_no_two_classes_have_the_same_name() -> None:
    modules = defaultdict(list)
    for info in pkgutil.walk_packages(model.__path__, f"{model.__name__}."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, type) and value.__module__ == info.name:
                modules[name].append(info.name.rpartition(".")[2])

    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
