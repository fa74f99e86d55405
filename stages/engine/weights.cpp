#include "stages/engine/weights.h"

#include <cstring>

#include "stages/model_io/float_formats.h"

namespace nightshift {

namespace {

// Tensors may lie unaligned in foreign files.
std::vector<float> floats_of(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  if (tensor.dtype == DType::f32) {
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    return values;
  }
  for (std::size_t n = 0; n < values.size(); ++n) {
    std::uint16_t bits;
    std::memcpy(&bits, tensor.data + 2 * n, 2);
    values[n] = tensor.dtype == DType::f16 ? float_of_f16(bits) : float_of_bf16(bits);
  }
  return values;
}

bool is_full_width(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

Error wrong_tensor(const TensorView& tensor, const std::string& expected) {
  return Error{
      ErrorCode::corrupt,
      "tensor " + tensor.name + " is " + to_string(tensor.dtype) + " " + to_string(tensor.shape),
      "checkpoint", "expected " + expected};
}

}  // namespace

std::string Weights::format_of(const std::string& name) const {
  const auto quantized = meta_.linears.find(name);
  if (quantized != meta_.linears.end()) return quantized->second.format;
  const TensorView* view = files_.find(name + ".weight");
  return view != nullptr && view->dtype == DType::bf16 ? "bf16" : "f32";
}

Result<TensorView> Weights::tensor(const std::string& name) const {
  const TensorView* view = files_.find(name);
  if (view == nullptr) {
    return Error{ErrorCode::not_found, "tensor " + name + " is missing", files_.folder(),
                 "the weights and config.json or nightshift.json do not belong together"};
  }
  return *view;
}

Result<TensorView> Weights::table(const std::string& name) const {
  NS_TRY_ASSIGN(TensorView view, tensor(name + ".weight"));
  if (!is_full_width(view.dtype) || view.shape.size() != 2) {
    return wrong_tensor(view, "a matrix in BF16, F16 or F32");
  }
  return view;
}

Result<std::vector<float>> Weights::vector(const std::string& name) const {
  NS_TRY_ASSIGN(const TensorView view, tensor(name + ".weight"));
  if (!is_full_width(view.dtype) || view.shape.size() != 1) {
    return wrong_tensor(view, "a vector in BF16, F16 or F32");
  }
  return floats_of(view);
}

Result<Weights::Quantized> Weights::quantized(const std::string& name) const {
  NS_TRY_ASSIGN(const TensorView q, tensor(name + ".weight"));
  NS_TRY_ASSIGN(const TensorView scale, tensor(name + ".weight_scale"));
  if (q.dtype != DType::i8 || q.shape.size() != 2) return wrong_tensor(q, "a matrix in I8");
  if (!is_full_width(scale.dtype) || scale.elements() != static_cast<std::size_t>(q.shape[0])) {
    return wrong_tensor(scale, "one scale for each of the " + std::to_string(q.shape[0]) + " rows");
  }
  return Quantized{narrow(q.shape[0]), narrow(q.shape[1]),
                   reinterpret_cast<const std::int8_t*>(q.data), floats_of(scale)};
}

Result<MatrixF32> Weights::matrix(const std::string& name) const {
  MatrixF32 matrix;
  if (meta_.linears.count(name) != 0) {
    NS_TRY_ASSIGN(const Quantized q, quantized(name));
    matrix.n = q.n;
    matrix.k = q.k;
    matrix.values.resize(static_cast<std::size_t>(q.n) * static_cast<std::size_t>(q.k));
    for (std::size_t at = 0; at < matrix.values.size(); ++at) {
      matrix.values[at] =
          static_cast<float>(q.values[at]) * q.scales[at / static_cast<std::size_t>(q.k)];
    }
    return matrix;
  }
  NS_TRY_ASSIGN(const TensorView view, table(name));
  matrix.n = narrow(view.shape[0]);
  matrix.k = narrow(view.shape[1]);
  matrix.values = floats_of(view);
  return matrix;
}

Result<kernels::PackedMatrix> Weights::pack_quantized(const std::vector<std::string>& names,
                                                      const kernels::Backend& backend) const {
  std::vector<std::int8_t> values;
  std::vector<float> scales;
  int n = 0, k = 0;
  kernels::ActivationQuant activation;
  for (const std::string& name : names) {
    NS_TRY_ASSIGN(const Quantized q, quantized(name));
    values.insert(values.end(), q.values,
                  q.values + static_cast<std::size_t>(q.n) * static_cast<std::size_t>(q.k));
    scales.insert(scales.end(), q.scales.begin(), q.scales.end());
    n += q.n;
    k = q.k;
    activation = meta_.linears.at(name).activation;
  }
  return backend.pack_int8(values.data(), scales.data(), n, k, activation);
}

Result<kernels::PackedMatrix> Weights::pack(const std::vector<std::string>& names,
                                            const kernels::Backend& backend) const {
  const std::string format = format_of(names.front());
  if (format == "int8") return pack_quantized(names, backend);
  if (format == "f32") {  // f16 too: widened, which is exact
    MatrixF32 stacked;
    for (const std::string& name : names) {
      NS_TRY_ASSIGN(const MatrixF32 part, matrix(name));
      stacked.values.insert(stacked.values.end(), part.values.begin(), part.values.end());
      stacked.n += part.n;
      stacked.k = part.k;
    }
    return backend.pack_f32(stacked.values.data(), stacked.n, stacked.k);
  }
  std::vector<std::uint16_t> stacked;
  int n = 0, k = 0;
  for (const std::string& name : names) {
    NS_TRY_ASSIGN(const TensorView view, table(name));
    const std::size_t at = stacked.size();
    stacked.resize(at + view.elements());
    std::memcpy(stacked.data() + at, view.data, view.bytes);
    n += narrow(view.shape[0]);
    k = narrow(view.shape[1]);
  }
  return backend.pack_bf16(stacked.data(), n, k);
}

}  // namespace nightshift
