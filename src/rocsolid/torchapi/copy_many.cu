// Copies many small tensors with one launch. Row y of the grid copies tensor y; its blocks stride over it together.
// Where the copies go and how long they are stays the same from call to call and lies in device memory; where they come
// from changes with every call and travels with the launch.
struct Target { char* to; unsigned long long bytes; };
constexpr int MOST = 256;
struct Sources { const char* from[MOST]; };

extern "C" __global__ void rocsolid_copy_many(const Target* targets, const __grid_constant__ Sources sources) {
  const Target target = targets[blockIdx.y];
  const char* from = sources.from[blockIdx.y];
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
