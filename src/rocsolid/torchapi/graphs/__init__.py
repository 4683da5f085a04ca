"""Private torch names and driver calls for CUDA and HIP graphs: capture state, batched copies, driver calls, tensor checks."""
