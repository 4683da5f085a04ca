import flashinfer
import pynvml

try:
    import cutlass
except ImportError:
    cutlass = None


def engine():
    import tensorrt

    return tensorrt.Builder()


def second():
    return 2


def third():
    return 3


def memory():
    pynvml.nvmlInit()
    return flashinfer, cutlass
