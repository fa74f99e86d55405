// Weights in panels, the order in which the vector kernels read them. Knows layouts; must not know
// which instruction set reads them. The packed layout:
//
//   A panel holds `panel` outputs. For each step of `group` consecutive inputs it stores the
//   `group` values of output 0, then those of output 1, ... so that one vector load gives one step
//   of all outputs. Panels follow each other; k is padded to whole steps and n to whole panels
//   with zeros. int8 matrices append the scales [n padded] and the offsets [n padded], the latter
//   being -128 * (sum of the row): what a kernel that adds 128 to its inputs must add back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace nightshift::kernels {

struct PanelLayout {
  int panel = 0;
  int group = 0;
};

// Where the parts of a packed matrix lie.
struct PanelView {
  const char* panels = nullptr;
  std::size_t panel_bytes = 0;
  int panel_count = 0;
  const float* scale = nullptr;           // int8 only
  const std::int32_t* offset = nullptr;   // int8 only
};

PackedMatrix pack_panels_f32(PanelLayout layout, const float* w, int n, int k);
PackedMatrix pack_panels_bf16(PanelLayout layout, const std::uint16_t* w, int n, int k);
PackedMatrix pack_panels_int8(PanelLayout layout, const std::int8_t* q, const float* scale, int n,
                              int k, ActivationQuant activation);

PanelView view_panels(PanelLayout layout, const PackedMatrix& matrix);

}  // namespace nightshift::kernels
