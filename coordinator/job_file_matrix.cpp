#include "coordinator/job_file_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "coordinator/units.h"
#include "schema/text.h"

namespace nightshift {
namespace {

constexpr std::size_t axes_max = 8;
constexpr std::size_t axis_name_bytes_max = 32;
constexpr std::size_t value_bytes_max = 64;
// Each is held against every combination.
constexpr std::size_t exclusions_max = 1000;
constexpr const char* foreach_axis = "item";

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  double count() const { return static_cast<double>(last) - static_cast<double>(first) + 1; }
};

bool looks_like_range(const YamlNode& node) {
  const std::size_t dots = node.text.find("..");
  return node.kind == YamlNode::Kind::scalar && !node.quoted && dots != std::string::npos &&
         dots > 0 && dots + 2 < node.text.size() &&
         node.text.find_first_not_of("0123456789-+.") == std::string::npos;
}

Result<Range> parse_range(const std::string& text) {
  const std::size_t dots = text.find("..");
  NS_TRY_ASSIGN(const std::int64_t first, parse_whole(text.substr(0, dots)));
  NS_TRY_ASSIGN(const std::int64_t last, parse_whole(text.substr(dots + 2)));
  if (last < first) {
    return Error{ErrorCode::invalid_argument, fmt::format("{}..{} goes down", first, last), "",
                 "write the smaller one first"};
  }
  return Range{first, last};
}

double count_values(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::list) {
    double count = 0;
    for (const YamlRef& item : node.items) {
      if (item->kind == YamlNode::Kind::scalar) count += count_values(*item);
    }
    return count;
  }
  if (!looks_like_range(node)) return 1;
  const Result<Range> range = parse_range(node.text);
  return range.ok() ? range->count() : 1;
}

bool is_reserved(const std::string& key) {
  return key == "include" || key == "exclude";
}

class MatrixReader {
 public:
  MatrixReader(std::string name, YamlProblems& problems)
      : name_(std::move(name)), problems_(problems) {}

  std::optional<Matrix> read(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) {
      fail(node.place, "expected a map of axes, found " + kind_text(node),
           "matrix: {seed: 1..5, scheme: [int8, auto]}");
      return std::nullopt;
    }
    for (const YamlEntry& entry : node.entries) {
      if (!is_reserved(entry.key)) read_axis(entry);
    }
    if (matrix_.axes.empty()) fail(node.place, "has no axis", "matrix: {seed: 1..5}");
    if (matrix_.axes.size() > axes_max) {
      fail(node.place, fmt::format("{} axes, the most is {}", matrix_.axes.size(), axes_max));
    }
    if (!fine_) return std::nullopt;
    cross();
    if (const YamlEntry* exclude = node.find("exclude")) exclude_from(*exclude->value);
    if (const YamlEntry* include = node.find("include")) include_from(*include->value);
    if (fine_ && matrix_.combinations.empty()) fail(node.place, "nothing is left of it");
    if (!fine_) return std::nullopt;
    return std::move(matrix_);
  }

  std::optional<Matrix> read_foreach(const YamlNode& node) {
    read_values(node, "", matrix_.axes.emplace_back(MatrixAxis{foreach_axis, {}}));
    if (!fine_) return std::nullopt;
    cross();
    return std::move(matrix_);
  }

 private:
  void fail(YamlPlace place, const std::string& what, const std::string& hint = "") {
    fine_ = false;
    problems_.add(place, name_ + ": " + what, hint);
  }

  void read_axis(const YamlEntry& entry) {
    const bool is_word =
        entry.key.size() <= axis_name_bytes_max && !entry.key.empty() &&
        entry.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!is_word) {
      return fail(entry.place,
                  fmt::format("`{}` is not the name of an axis", clip_utf8(entry.key, 60)),
                  fmt::format("1 to {} of a-z, 0-9 and _", axis_name_bytes_max));
    }
    read_values(*entry.value, entry.key + ": ",
                matrix_.axes.emplace_back(MatrixAxis{entry.key, {}}));
  }

  void read_values(const YamlNode& node, const std::string& who, MatrixAxis& axis) {
    if (node.kind == YamlNode::Kind::list) {
      for (const YamlRef& item : node.items) read_value(*item, who, axis);
    } else {
      read_value(node, who, axis);
    }
    if (fine_ && axis.values.empty()) fail(node.place, who + "has no values");
    std::set<std::string_view> seen;
    for (const std::string& value : axis.values) {
      if (seen.insert(value).second) continue;
      return fail(node.place, fmt::format("{}`{}` is there twice", who, value));
    }
  }

  void read_value(const YamlNode& node, const std::string& who, MatrixAxis& axis) {
    if (looks_like_range(node)) {
      const Result<Range> range = parse_range(node.text);
      if (!range.ok()) return fail(node.place, who + range.error().what, range.error().hint);
      // The caller has counted already; this is for what nobody asked about first.
      if (range->count() > static_cast<double>(job_stages_max)) {
        return fail(node.place, who + "more than " + std::to_string(job_stages_max) + " values");
      }
      for (std::int64_t value = range->first; value <= range->last; ++value) {
        axis.values.push_back(std::to_string(value));
      }
      return;
    }
    if (node.kind != YamlNode::Kind::scalar || !is_name(node.text, value_bytes_max)) {
      return fail(
          node.place, fmt::format("{}expected a value, found {}", who, kind_text(node)),
          fmt::format("1 to {} bytes in one line, or a range like 1..100", value_bytes_max));
    }
    axis.values.push_back(node.text);
  }

  // The last axis turns fastest, as in nested loops.
  void cross() {
    matrix_.combinations.emplace_back();
    for (const MatrixAxis& axis : matrix_.axes) {
      std::vector<Combination> longer;
      longer.reserve(matrix_.combinations.size() * axis.values.size());
      for (const Combination& start : matrix_.combinations) {
        for (const std::string& value : axis.values) {
          longer.push_back(start);
          longer.back().emplace_back(axis.name, value);
        }
      }
      matrix_.combinations = std::move(longer);
    }
  }

  // {axis: value, ...} at `node`; empty when it is wrong.
  Combination read_choice(const YamlNode& node, const char* key) {
    Combination choice;
    if (node.kind != YamlNode::Kind::map || node.entries.empty()) {
      fail(node.place,
           fmt::format("{}: expected a list of {{axis: value}}, found {}", key, kind_text(node)));
      return {};
    }
    std::vector<std::string> names;
    for (const MatrixAxis& axis : matrix_.axes) names.push_back(axis.name);
    for (const YamlEntry& entry : node.entries) {
      if (std::find(names.begin(), names.end(), entry.key) == names.end()) {
        fail(entry.place, fmt::format("{}: there is no axis `{}`", key, clip_utf8(entry.key, 60)),
             suggestion(entry.key, names));
        return {};
      }
      if (entry.value->kind != YamlNode::Kind::scalar ||
          !is_name(entry.value->text, value_bytes_max)) {
        fail(entry.value->place, fmt::format("{}: expected a value of {}, found {}", key, entry.key,
                                             kind_text(*entry.value)));
        return {};
      }
      choice.emplace_back(entry.key, entry.value->text);
    }
    return choice;
  }

  struct Choice {
    YamlPlace place;
    Combination values;
  };

  // The list of {axis: value, ...} at `node`, up to the first one that is wrong.
  std::vector<Choice> read_choices(const YamlNode& node, const char* key, std::size_t max) {
    std::vector<Choice> choices;
    if (node.kind != YamlNode::Kind::list) {
      fail(node.place,
           fmt::format("{}: expected a list of {{axis: value}}, found {}", key, kind_text(node)));
    } else if (node.items.size() > max) {
      fail(node.place, fmt::format("{}: {} entries, the most is {}", key, node.items.size(), max));
    } else {
      for (const YamlRef& item : node.items) {
        Combination choice = read_choice(*item, key);
        if (choice.empty()) break;
        choices.push_back({item->place, std::move(choice)});
      }
    }
    return choices;
  }

  void exclude_from(const YamlNode& node) {
    for (const Choice& choice : read_choices(node, "exclude", exclusions_max)) {
      const auto fits = [&choice](const Combination& combination) {
        return std::all_of(choice.values.begin(), choice.values.end(), [&](const auto& wanted) {
          return std::find(combination.begin(), combination.end(), wanted) != combination.end();
        });
      };
      // One that fits nothing is a slip, and would let through what it was meant to keep out.
      if (std::erase_if(matrix_.combinations, fits) == 0) {
        fail(choice.place, "exclude: no combination has these values");
      }
    }
  }

  void include_from(const YamlNode& node) {
    for (const Choice& choice : read_choices(node, "include", job_stages_max)) {
      Combination whole;
      for (const MatrixAxis& axis : matrix_.axes) {
        if (const std::string* value = value_of(choice.values, axis.name)) {
          whole.emplace_back(axis.name, *value);
        } else {
          fail(choice.place, fmt::format("include: says nothing of axis `{}`", axis.name));
        }
      }
      matrix_.combinations.push_back(std::move(whole));
    }
  }

  const std::string name_;
  YamlProblems& problems_;
  Matrix matrix_;
  bool fine_ = true;
};

struct Substitution {
  const Combination& combination;
  const std::string& name;
  YamlProblems& problems;

  std::string text(const YamlNode& node) const { return text(node.text, node.place); }

  std::string text(const std::string& from, YamlPlace place) const {
    std::string made;
    std::size_t at = 0;
    while (true) {
      const std::size_t dollar = from.find("${", at);
      if (dollar == std::string::npos) break;
      if (dollar > at && from[dollar - 1] == '$') {  // $${ is a ${ for the stage itself
        made.append(from, at, dollar - 1 - at).append("${");
        at = dollar + 2;
        continue;
      }
      made.append(from, at, dollar - at);
      const std::size_t end = from.find('}', dollar);
      const std::string axis =
          end == std::string::npos ? "" : from.substr(dollar + 2, end - dollar - 2);
      const std::string* value = value_of(combination, axis);
      if (!value) {
        std::vector<std::string> names;
        for (const auto& [known, unused] : combination) names.push_back(known);
        const std::string found = clip_utf8(std::string_view(from).substr(dollar), 40);
        problems.add(place, fmt::format("{}: `{}` is no axis of this stage", name, found),
                     suggestion(axis, names) + "; for the stage's own use write $${");
        return from;
      }
      made += *value;
      at = end + 1;
    }
    return made.append(from, at);
  }

  YamlRef node(const YamlRef& from) const {
    YamlNode made;
    bool changed = false;
    if (from->kind == YamlNode::Kind::scalar) {
      if (from->text.find("${") == std::string::npos) return from;
      made = *from;
      made.text = text(*from);
      return std::make_shared<const YamlNode>(std::move(made));
    }
    for (const YamlRef& item : from->items) {
      made.items.push_back(node(item));
      changed = changed || made.items.back() != item;
    }
    for (const YamlEntry& entry : from->entries) {
      made.entries.push_back({text(entry.key, entry.place), entry.place, node(entry.value)});
      changed = changed || made.entries.back().value != entry.value ||
                made.entries.back().key != entry.key;
    }
    if (!changed) return from;
    made.kind = from->kind;
    made.place = from->place;
    made.weight = from->weight;
    return std::make_shared<const YamlNode>(std::move(made));
  }
};

}  // namespace

const std::string* value_of(const Combination& combination, std::string_view axis) {
  for (const auto& [name, value] : combination) {
    if (name == axis) return &value;
  }
  return nullptr;
}

bool is_matrix(const YamlNode& stage) {
  return stage.find("matrix") || stage.find("foreach");
}

double count_combinations(const YamlNode& stage) {
  if (const YamlEntry* each = stage.find("foreach")) return count_values(*each->value);
  const YamlEntry* matrix = stage.find("matrix");
  if (!matrix) return 1;
  double count = 1;
  for (const YamlEntry& entry : matrix->value->entries) {
    if (!is_reserved(entry.key)) count *= count_values(*entry.value);
  }
  const YamlEntry* include = matrix->value->find("include");
  return include ? count + static_cast<double>(include->value->items.size()) : count;
}

std::optional<Matrix> read_matrix(const YamlNode& stage, const std::string& name,
                                  YamlProblems& problems) {
  const YamlEntry* matrix = stage.find("matrix");
  const YamlEntry* each = stage.find("foreach");
  if (matrix && each) {
    problems.add(each->place, name + ": has matrix and foreach",
                 "foreach is a matrix with the one axis `item`; put it into the matrix");
    return std::nullopt;
  }
  if (each) return MatrixReader(name + ".foreach", problems).read_foreach(*each->value);
  return MatrixReader(name + ".matrix", problems).read(*matrix->value);
}

std::string matrix_stage_name(const std::string& stage, const Combination& combination) {
  std::string name = stage;
  for (const auto& [axis, value] : combination) {
    name += '-';
    for (const char c : value) {
      const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      const bool fine = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9') ||
                        small == '-' || small == '_';
      name += fine ? small : '_';
    }
  }
  return name;
}

YamlRef substitute(const YamlRef& stage, const Combination& combination, const std::string& name,
                   YamlProblems& problems) {
  auto bare = std::make_shared<YamlNode>(*stage);
  std::erase_if(bare->entries, [](const YamlEntry& entry) {
    return entry.key == "matrix" || entry.key == "foreach";
  });
  return Substitution{combination, name, problems}.node(bare);
}

}  // namespace nightshift
