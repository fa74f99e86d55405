// A report as lines for a terminal: verdict first, then the tables. Pure. Knows reports and widths.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/report.h"

namespace nightshift {

struct ReportStyle {
  std::size_t columns = 100;   // wide tables are split, with the checkpoint's name repeated
  bool colour = false;
};

std::vector<std::string> render_report(const JobReport& report, const ReportStyle& style);

// A number as its column shows it: "118.3", "20.2 GiB", "99.1%".
std::string format_measure(const std::string& name, double value);

}  // namespace nightshift
