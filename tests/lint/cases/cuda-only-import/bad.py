import tensorrt
from cuda.bindings import runtime


def plain():
    return 1


def other():
    return 2


def third():
    return 3


def engine():
    return tensorrt.Builder()
