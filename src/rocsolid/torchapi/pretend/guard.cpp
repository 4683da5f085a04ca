// A CPU build of torch has no device guard, hooks or attention selection for the device type "cuda", and autograd ends the
// process if one of them is missing. A CUDA or ROCm build has them, but they would initialise a real device or fail without one.
// These stubs do nothing, for one device on which nothing is ever run.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const Device kOnly(DeviceType::CUDA, 0);

struct NoGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device getDevice() const override { return kOnly; }
  Device exchangeDevice(Device) const override { return kOnly; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }

  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, kOnly); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, kOnly); }
  Stream getNewStream(Device, int) const override { return Stream(Stream::DEFAULT, kOnly); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

}  // namespace

namespace at {

struct NoHooks : CUDAHooksInterface {
  explicit NoHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasROCM() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
// A CUDA or ROCm build registers its own under the same name; the one with the higher priority is used.
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, NoHooks)

namespace native {

// The selection of a ROCm build in common cases: flash attention in half precision without a mask, the memory-efficient kernel
// otherwise, plain operations in double precision.
int64_t attention_choice(const Tensor& query, const Tensor&, const Tensor&, const std::optional<Tensor>& mask, double,
                         bool, std::optional<double>, bool) {
  const auto kind = query.scalar_type();
  if (kind == kDouble) return 0;
  const bool masked = mask.has_value() && mask->defined();
  return masked || kind == kFloat ? 2 : 1;
}

}  // namespace native
}  // namespace at

// Called after torch is imported, when a CUDA or ROCm build has registered its own guard and selection.
extern "C" void rocsolid_take_over() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(new NoGuard());
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&at::native::attention_choice);
}
