#include "kernels/products.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/parallel.h"
#include "kernels/thread_pool.h"

namespace nightshift::kernels {
namespace {

// Scratch slots of this file.
constexpr int rows_slot = 0;
constexpr int scale_slot = 1;
constexpr int task_slot = 2;

constexpr int row_blocks_per_task = 4;
// A fused tile goes through a buffer on the stack: small enough for the first-level cache.
constexpr int fused_rows = 24;
constexpr int fused_columns = 64;
// Work units: one weight value met by one row. Below four rows a product waits for its weights,
// so that fewer rows cost no less.
constexpr std::int64_t rows_hidden_by_weights = 4;
constexpr std::int64_t least_task_units = 48 * 1024;
constexpr std::int64_t tasks_per_thread = 16;
constexpr std::int64_t least_parallel_prepare = 32 * 1024;

struct Task {
  int expert = 0;
  int row = 0;
  int rows = 0;
  int column = 0;   // first output, a multiple of the panel width
  int columns = 0;
};

struct Plan {
  const ProductKernels* kernels = nullptr;
  const ProductCall* call = nullptr;
  int m = 0;
  int n = 0;   // outputs a row of y
  int k = 0;
  char* prepared = nullptr;
  std::size_t stride = 0;
  float* scale = nullptr;
};

ProductKind kind_of(WeightFormat format, Precision precision) {
  if (format == WeightFormat::int8) return ProductKind::int8_int8;
  const bool f32 = precision == Precision::f32;
  if (format == WeightFormat::f32) return f32 ? ProductKind::f32_f32 : ProductKind::f32_bf16;
  return f32 ? ProductKind::bf16_f32 : ProductKind::bf16_bf16;
}

const ProductKernel& kernel_of(const Plan& plan, int expert) {
  const PackedMatrix& matrix = plan.call->w[expert];
  return plan.kernels->kernel[static_cast<int>(kind_of(matrix.format, plan.call->precision))];
}

// Calls visit(expert, first row, rows) for each expert's share of rows [begin, end).
template <class Visit>
void for_experts(const ProductCall& call, int begin, int end, const Visit& visit) {
  for (int expert = 0; expert < call.experts; ++expert) {
    const int first = std::max<int>(begin, call.offsets[expert]);
    const int last = std::min<int>(end, call.offsets[expert + 1]);
    if (first < last) visit(expert, first, last - first);
  }
}

void prepare_rows(const Plan& plan, int begin, int end) {
  for_experts(*plan.call, begin, end, [&](int expert, int first, int rows) {
    const ProductKernel& kernel = kernel_of(plan, expert);
    if (kernel.row_bytes(plan.k) == 0) return;
    kernel.prepare(plan.call->x + static_cast<std::size_t>(first) * plan.k, rows, plan.k,
                   plan.call->w[expert].activation, plan.prepared + plan.stride * first,
                   plan.stride, plan.scale + first);
  });
}

void prepare_all(Context& context, Plan& plan) {
  for_experts(*plan.call, 0, plan.m, [&](int expert, int, int) {
    plan.stride = std::max(plan.stride, kernel_of(plan, expert).row_bytes(plan.k));
  });
  if (plan.stride == 0) return;
  // Rows a multiple of 4 KiB apart would share one set of the first-level cache.
  if (plan.stride % 4096 == 0) plan.stride += 64;
  plan.prepared = static_cast<char*>(context.scratch(rows_slot, plan.stride * plan.m));
  plan.scale = static_cast<float*>(context.scratch(scale_slot, sizeof(float) * plan.m));
  const std::int64_t elements = static_cast<std::int64_t>(plan.m) * plan.k;
  const int grain = elements < least_parallel_prepare ? plan.m : 8;
  for_range(context, plan.m, grain, [&](int begin, int end) { prepare_rows(plan, begin, end); });
}

ProductTile tile_of(const Plan& plan, const Task& task) {
  const ProductCall& call = *plan.call;
  const PackedMatrix& matrix = call.w[task.expert];
  const PanelLayout layout = plan.kernels->layout[static_cast<int>(matrix.format)];
  const PanelView view = view_panels(layout, matrix);
  ProductTile tile;
  tile.rows = task.rows;
  tile.k = plan.k;
  if (kernel_of(plan, task.expert).row_bytes(plan.k) == 0) {
    tile.x_stride = sizeof(float) * plan.k;
    tile.x = reinterpret_cast<const char*>(call.x) + tile.x_stride * task.row;
  } else {
    tile.x_stride = plan.stride;
    tile.x = plan.prepared + tile.x_stride * task.row;
    tile.x_scale = plan.scale + task.row;
  }
  const int panel = task.column / layout.panel;
  const int first = panel * layout.panel;
  tile.w = view.panels + view.panel_bytes * panel;
  tile.panel_bytes = view.panel_bytes;
  if (view.scale != nullptr) {
    tile.w_scale = view.scale + first;
    tile.w_offset = view.offset + first;
  }
  tile.n = task.column + task.columns - first;
  tile.panels = (tile.n + layout.panel - 1) / layout.panel;
  return tile;
}

void run_plain(const Plan& plan, const Task& task) {
  ProductTile tile = tile_of(plan, task);
  tile.y_stride = plan.n;
  tile.y = plan.call->y + tile.y_stride * task.row + task.column;
  kernel_of(plan, task.expert).tile(tile);
}

// The up half of a fused matrix need not start on a panel: its tile then starts some outputs early.
void run_gate_up(const Plan& plan, const Task& task) {
  constexpr int widest_panel = 16;
  constexpr int stride = 2 * fused_columns + 2 * widest_panel;
  alignas(64) float buffer[fused_rows * stride];
  const ProductKernel& kernel = kernel_of(plan, task.expert);
  ProductTile gate = tile_of(plan, task);
  gate.y = buffer;
  gate.y_stride = stride;
  kernel.tile(gate);
  Task up_task = task;
  up_task.column += plan.n;
  ProductTile up = tile_of(plan, up_task);
  up.y = buffer + fused_columns + widest_panel;
  up.y_stride = stride;
  kernel.tile(up);
  const float* up_columns = up.y + (up.n - task.columns);
  for (int row = 0; row < task.rows; ++row) {
    plan.kernels->silu_mul(buffer + row * stride, up_columns + row * stride, task.columns,
                           plan.call->y + static_cast<std::size_t>(task.row + row) * plan.n +
                               task.column);
  }
}

int panel_granule(int rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }

// Columns a task of `rows` rows should take, in whole granules of panels.
int columns_per_task(const Plan& plan, int rows, std::int64_t target) {
  const PackedMatrix& matrix = *plan.call->w;
  const int panel = plan.kernels->layout[static_cast<int>(matrix.format)].panel;
  const int granule = panel * panel_granule(rows);
  const std::int64_t column_units = std::max<std::int64_t>(rows, rows_hidden_by_weights) * plan.k *
                                    (plan.call->gate_up ? 2 : 1);
  std::int64_t columns = target / std::max<std::int64_t>(column_units, 1);
  columns = (columns + granule - 1) / granule * granule;
  columns = std::max<std::int64_t>(columns, granule);
  columns = std::min<std::int64_t>(columns, (plan.n + panel - 1) / panel * panel);
  return static_cast<int>(columns);
}

int most_rows(const Plan& plan) {
  return plan.call->gate_up ? fused_rows : plan.kernels->row_block * row_blocks_per_task;
}

// Calls visit(task) for each tile of the call, over all experts.
template <class Visit>
void for_all_tasks(const Plan& plan, int threads, const Visit& visit) {
  std::int64_t units = 0;
  for_experts(*plan.call, 0, plan.m, [&](int, int, int rows) {
    units += std::max<std::int64_t>(rows, rows_hidden_by_weights) * plan.k * plan.n *
             (plan.call->gate_up ? 2 : 1);
  });
  const std::int64_t target = std::max(units / (threads * tasks_per_thread), least_task_units);
  const int cap = most_rows(plan);
  for_experts(*plan.call, 0, plan.m, [&](int expert, int first, int rows) {
    const int row_tiles = (rows + cap - 1) / cap;
    for (int i = 0; i < row_tiles; ++i) {
      // Equal shares: 50 rows are 25 + 25, not 48 + 2.
      const int begin = static_cast<int>(static_cast<std::int64_t>(rows) * i / row_tiles);
      const int end = static_cast<int>(static_cast<std::int64_t>(rows) * (i + 1) / row_tiles);
      int columns = columns_per_task(plan, end - begin, target);
      if (plan.call->gate_up) columns = std::min(columns, fused_columns);
      for (int column = 0; column < plan.n; column += columns) {
        visit(Task{expert, first + begin, end - begin, column,
                   std::min(columns, plan.n - column)});
      }
    }
  });
}

}  // namespace

RowScale row_scale(float amax, ActivationQuant activation) {
  constexpr float steps = 127.0f;
  constexpr float counts_as_zero = 1e-30f;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (std::isnan(amax)) return {nan, 0.0f};
  float top = amax;
  if (activation.clip > 0.0f) {
    top = activation.per_token ? std::min(amax, activation.clip) : activation.clip;
  }
  if (std::isinf(top)) return {nan, 0.0f};
  if (top < counts_as_zero) return {0.0f, 0.0f};
  return {top / steps, steps / top};
}

void run_products(Context& context, const ProductKernels& kernels, const ProductCall& call) {
  if (call.experts <= 0) return;
  Plan plan;
  plan.kernels = &kernels;
  plan.call = &call;
  plan.m = call.offsets[call.experts];
  plan.k = call.w->k;
  plan.n = call.gate_up ? call.w->n / 2 : call.w->n;
  if (plan.m <= 0 || plan.n <= 0) return;
  prepare_all(context, plan);

  const int threads = context.pool->threads();
  int count = 0;
  for_all_tasks(plan, threads, [&](const Task&) { ++count; });
  auto* tasks = static_cast<Task*>(context.scratch(task_slot, sizeof(Task) * count));
  int filled = 0;
  for_all_tasks(plan, threads, [&](const Task& task) { tasks[filled++] = task; });
  for_range(context, count, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (call.gate_up) {
        run_gate_up(plan, tasks[i]);
      } else {
        run_plain(plan, tasks[i]);
      }
    }
  });
}

}  // namespace nightshift::kernels
