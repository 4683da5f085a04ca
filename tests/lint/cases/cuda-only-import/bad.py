import tensorrt
from cuda.bindings import runtime


def first():
    return 1


def second():
    return 2


def third():
    return 3


def engine():
    return tensorrt.Builder()
