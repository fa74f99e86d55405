// One stage of a job file that stands for many: its axes, their combinations, and `${axis}` in its
// texts. Private to job_file*.cpp. Knows YAML and names; must not know kinds of stages.
//
//   quantize:
//     matrix: {scheme: [int8, auto], seed: 1..5000, exclude: [{scheme: auto, seed: 7}]}
//     deviation_limit: 5%
//     needs: calibrate            # the one with the same seed, where calibrate has that axis
//
// becomes quantize-int8-1, quantize-int8-2, ...: a name that is a folder, a variable and a word on
// the command line without quotes. What differs only in other characters is refused, not merged.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/yaml_reader.h"

namespace nightshift {

inline constexpr std::size_t job_stages_max = 20'000;  // after expansion

struct MatrixAxis {
  std::string name;
  std::vector<std::string> values;
};

// An axis and its value, in the order of the axes.
using Combination = std::vector<std::pair<std::string, std::string>>;

// The value of `axis`, null when there is none.
const std::string* value_of(const Combination& combination, std::string_view axis);

struct Matrix {
  std::vector<MatrixAxis> axes;
  std::vector<Combination> combinations;
};

// Whether the stage has `matrix` or `foreach`.
bool is_matrix(const YamlNode& stage);

// How many stages it stands for, before `exclude`, without making any: the product of its axes and
// what is included. Nothing is said about mistakes; read_matrix does that.
double count_combinations(const YamlNode& stage);

// `stage` is called `name` ("stages.quantize") in messages. None when something is wrong.
std::optional<Matrix> read_matrix(const YamlNode& stage, const std::string& name,
                                  YamlProblems& problems);

// "quantize" + int8, 1 -> "quantize-int8-1". Other characters than a-z, 0-9, _ and - become _.
std::string matrix_stage_name(const std::string& stage, const Combination& combination);

// The stage with `${axis}` replaced in all its texts, without `matrix` and `foreach`; `$${` stays
// as `${`. An axis that does not exist is a problem. Nodes without `${` are shared.
YamlRef substitute(const YamlRef& stage, const Combination& combination, const std::string& name,
                   YamlProblems& problems);

}  // namespace nightshift
