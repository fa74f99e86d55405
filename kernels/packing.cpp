#include "kernels/packing.h"

#include <cstring>

#include "kernels/memory.h"

namespace nightshift::kernels {
namespace {

std::size_t element_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return 4;
    case WeightFormat::bf16: return 2;
    case WeightFormat::int8: return 1;
  }
  return 0;
}

struct Sizes {
  int panels = 0;
  int steps = 0;
  std::size_t panel_bytes = 0;
  std::size_t padded_n = 0;
  std::size_t total = 0;
};

Sizes sizes_of(PanelLayout layout, WeightFormat format, int n, int k) {
  Sizes sizes;
  sizes.panels = (n + layout.panel - 1) / layout.panel;
  sizes.steps = (k + layout.group - 1) / layout.group;
  sizes.panel_bytes = static_cast<std::size_t>(sizes.steps) * layout.panel * layout.group *
                      element_bytes(format);
  sizes.padded_n = static_cast<std::size_t>(sizes.panels) * layout.panel;
  sizes.total = sizes.panel_bytes * sizes.panels;
  if (format == WeightFormat::int8) {
    sizes.total += sizes.padded_n * (sizeof(float) + sizeof(std::int32_t));
  }
  return sizes;
}

// Row by row: reads run through the source once, writes stay within one panel.
template <class Element>
void fill_panels(PanelLayout layout, const Sizes& sizes, const Element* w, int n, int k,
                 char* out) {
  const std::size_t unit = sizeof(Element) * layout.group;
  const std::size_t stride = unit * layout.panel;
  const int whole = k / layout.group;
  for (int row = 0; row < n; ++row) {
    const Element* source = w + static_cast<std::size_t>(row) * k;
    char* target = out + sizes.panel_bytes * (row / layout.panel) + unit * (row % layout.panel);
    if (unit == 4) {
      for (int step = 0; step < whole; ++step) {
        std::memcpy(target + stride * step, source + static_cast<std::size_t>(step) * layout.group,
                    4);
      }
    } else {
      for (int step = 0; step < whole; ++step) {
        std::memcpy(target + stride * step, source + static_cast<std::size_t>(step) * layout.group,
                    unit);
      }
    }
    if (whole < sizes.steps) {
      std::memcpy(target + stride * whole, source + static_cast<std::size_t>(whole) * layout.group,
                  sizeof(Element) * (k - whole * layout.group));
    }
  }
}

template <class Element>
std::shared_ptr<void> make_panels(PanelLayout layout, const Sizes& sizes, const Element* w, int n,
                                  int k) {
  std::shared_ptr<void> block = make_block(sizes.total);
  char* out = static_cast<char*>(block.get());
  const bool padded = n % layout.panel != 0 || k % layout.group != 0;
  if (padded) std::memset(out, 0, sizes.panel_bytes * sizes.panels);
  fill_panels(layout, sizes, w, n, k, out);
  return block;
}

template <class Element>
PackedMatrix pack_plain(PanelLayout layout, WeightFormat format, const Element* w, int n, int k) {
  const Sizes sizes = sizes_of(layout, format, n, k);
  PackedMatrix matrix;
  matrix.format = format;
  matrix.n = n;
  matrix.k = k;
  matrix.bytes = sizes.total;
  matrix.data = make_panels(layout, sizes, w, n, k);
  return matrix;
}

}  // namespace

PackedMatrix pack_panels_f32(PanelLayout layout, const float* w, int n, int k) {
  return pack_plain(layout, WeightFormat::f32, w, n, k);
}

PackedMatrix pack_panels_bf16(PanelLayout layout, const std::uint16_t* w, int n, int k) {
  return pack_plain(layout, WeightFormat::bf16, w, n, k);
}

PackedMatrix pack_panels_int8(PanelLayout layout, const std::int8_t* q, const float* scale, int n,
                              int k, ActivationQuant activation) {
  const Sizes sizes = sizes_of(layout, WeightFormat::int8, n, k);
  PackedMatrix matrix;
  matrix.format = WeightFormat::int8;
  matrix.n = n;
  matrix.k = k;
  matrix.bytes = sizes.total;
  matrix.activation = activation;
  std::shared_ptr<void> block = make_panels(layout, sizes, q, n, k);
  char* tail = static_cast<char*>(block.get()) + sizes.panel_bytes * sizes.panels;
  float* scales = reinterpret_cast<float*>(tail);
  auto* offsets = reinterpret_cast<std::int32_t*>(scales + sizes.padded_n);
  for (std::size_t row = 0; row < sizes.padded_n; ++row) {
    std::int32_t sum = 0;
    if (row < static_cast<std::size_t>(n)) {
      for (int i = 0; i < k; ++i) sum += q[row * k + i];
    }
    scales[row] = row < static_cast<std::size_t>(n) ? scale[row] : 0.0f;
    offsets[row] = -128 * sum;
  }
  matrix.data = std::move(block);
  return matrix;
}

PanelView view_panels(PanelLayout layout, const PackedMatrix& matrix) {
  const Sizes sizes = sizes_of(layout, matrix.format, matrix.n, matrix.k);
  PanelView view;
  view.panels = static_cast<const char*>(matrix.data.get());
  view.panel_bytes = sizes.panel_bytes;
  view.panel_count = sizes.panels;
  if (matrix.format == WeightFormat::int8) {
    view.scale = reinterpret_cast<const float*>(view.panels + sizes.panel_bytes * sizes.panels);
    view.offset = reinterpret_cast<const std::int32_t*>(view.scale + sizes.padded_n);
  }
  return view;
}

}  // namespace nightshift::kernels
