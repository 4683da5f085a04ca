try:
    import pynvml
except ImportError:
    pynvml = None


def engine():
    import tensorrt

    return tensorrt.Builder()
