// Copies many small tensors with one launch. The blocks of row y of the grid copy tensor y together.
// The target addresses and sizes are the same for every call and are stored in device memory. The source addresses change
// with every call and are arguments of the launch, so there is a kernel for few tensors and one for many.
struct Target { char* to; unsigned long long bytes; };
template <int MOST> struct Sources { const char* from[MOST]; };

__device__ __forceinline__ void copy(const Target target, const char* from) {
  const unsigned long long first = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned long long step = gridDim.x * blockDim.x;
  unsigned long long done = 0;
  if (((reinterpret_cast<unsigned long long>(from) | reinterpret_cast<unsigned long long>(target.to)) & 15) == 0) {
    const unsigned long long wide = target.bytes / 16;
    for (unsigned long long at = first; at < wide; at += step)
      reinterpret_cast<uint4*>(target.to)[at] = reinterpret_cast<const uint4*>(from)[at];
    done = wide * 16;
  }
  for (unsigned long long at = done + first; at < target.bytes; at += step) target.to[at] = from[at];
}

extern "C" __global__ void rocsolid_copy_16(const Target* targets, const __grid_constant__ Sources<16> sources) {
  copy(targets[blockIdx.y], sources.from[blockIdx.y]);
}

extern "C" __global__ void rocsolid_copy_256(const Target* targets, const __grid_constant__ Sources<256> sources) {
  copy(targets[blockIdx.y], sources.from[blockIdx.y]);
}
