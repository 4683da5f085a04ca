// A CPU build of torch has no device guard, no hooks and no attention choice for the device type "cuda", and autograd
// ends the process where one is missing. These do nothing, for one device on which nothing is ever run.
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

const bool registered = [] {
  auto& entry = c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)];
  if (!entry.load()) entry.store(new NoGuard());
  return true;
}();

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
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, NoHooks)

namespace native {

// What a ROCm build answers in the common cases: flash attention in half precision without a mask, the memory-efficient kernel
// otherwise, plain operations in double precision.
int64_t attention_choice(const Tensor& query, const Tensor&, const Tensor&, const std::optional<Tensor>& mask, double,
                         bool, std::optional<double>, bool) {
  const auto kind = query.scalar_type();
  if (kind == kDouble) return 0;
  const bool masked = mask.has_value() && mask->defined();
  return masked || kind == kFloat ? 2 : 1;
}
static RegisterCUDADispatch<struct _fused_sdp_choice_stub_DECLARE_DISPATCH_type> attention_choice_entry(
    _fused_sdp_choice_stub, &attention_choice);

}  // namespace native
}  // namespace at
