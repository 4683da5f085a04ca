"""Private names around CUDA and HIP graphs: capture state, batched copies, driver calls, memory."""
