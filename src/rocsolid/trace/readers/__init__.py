"""Reads traces of torch.profiler (Kineto) and rocprofv3 into `TraceColumns`."""
