#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "coordinator/job_file_stages.h"
#include "schema/text.h"

namespace nightshift {
namespace {

// Two matrices of 10,000 that share no axis would be a hundred million.
constexpr std::size_t needs_max = 500'000;

class NeedResolver {
 public:
  NeedResolver(const std::vector<StageDraft>& drafts, YamlProblems& problems)
      : drafts_(drafts), problems_(problems) {
    by_name_.reserve(drafts.size());
    std::set<std::string> titles;
    for (std::uint32_t i = 0; i < drafts.size(); ++i) {
      by_name_.emplace(drafts[i].spec.name, i);
      if (!drafts[i].spec.group.empty()) groups_[drafts[i].title].push_back(i);
      titles.insert(drafts[i].title);
    }
    titles_.assign(titles.begin(), titles.end());
  }

  std::optional<DraftNeeds> run() {
    DraftNeeds needs(drafts_.size());
    for (std::uint32_t i = 0; i < drafts_.size(); ++i) {
      for (const auto& [needed, place] : drafts_[i].needs) {
        if (!resolve(drafts_[i], needed, place, needs[i])) return std::nullopt;
      }
      if (drafts_[i].needs.size() > 1) keep_first_of_each(needs[i]);
    }
    if (!fine_) return std::nullopt;
    return needs;
  }

 private:
  using Places = std::vector<std::uint32_t>;
  // The stages of a group by their values on some of its axes.
  using ByValues = std::unordered_map<std::string, Places>;

  void fail(const StageDraft& draft, YamlPlace place, const std::string& what,
            const std::string& hint) {
    fine_ = false;
    problems_.add(place, fmt::format("stages.{}.needs: {}", draft.title, what), hint);
  }

  // False when there is no use in going on.
  bool resolve(const StageDraft& draft, const std::string& needed, YamlPlace place, Places& needs) {
    const auto one = by_name_.find(needed);
    const auto group = groups_.find(needed);
    if (group != groups_.end()) return take_from_group(draft, *group, place, needs);
    if (one != by_name_.end()) {
      needs.push_back(one->second);
      return count(draft, place, 1);
    }
    if (missing_.insert({place, needed}).second) {
      fail(draft, place, fmt::format("there is no stage `{}`", clip_utf8(needed, 60)),
           suggestion(needed, titles_));
    }
    return missing_.size() < 200;  // more than are shown
  }

  bool take_from_group(const StageDraft& draft, const std::pair<const std::string, Places>& group,
                       YamlPlace place, Places& needs) {
    std::vector<std::string> shared;
    for (const auto& [axis, value] : drafts_[group.second.front()].axes) {
      if (value_of(draft.axes, axis)) shared.push_back(axis);
    }
    ByValues& by_values = index_of(group, shared);
    const auto found = by_values.find(values_of(draft, shared));
    if (found == by_values.end()) {
      if (missing_.insert({place, group.first}).second) {
        std::string values;
        for (const std::string& axis : shared) {
          values +=
              fmt::format("{}{}={}", values.empty() ? "" : ", ", axis, *value_of(draft.axes, axis));
        }
        fail(draft, place, fmt::format("no stage of `{}` has {}", group.first, values),
             "an axis that both have must have the same values");
      }
      return true;
    }
    needs.insert(needs.end(), found->second.begin(), found->second.end());
    return count(draft, place, found->second.size());
  }

  ByValues& index_of(const std::pair<const std::string, Places>& group,
                     const std::vector<std::string>& shared) {
    const auto [at, fresh] = indexes_.try_emplace({group.first, shared});
    if (!fresh) return at->second;
    for (const std::uint32_t member : group.second) {
      at->second[values_of(drafts_[member], shared)].push_back(member);
    }
    return at->second;
  }

  // Values have no control characters.
  static std::string values_of(const StageDraft& draft, const std::vector<std::string>& axes) {
    std::string values;
    for (const std::string& axis : axes) values += *value_of(draft.axes, axis) + '\n';
    return values;
  }

  bool count(const StageDraft& draft, YamlPlace place, std::size_t more) {
    needs_ += more;
    if (needs_ <= needs_max) return true;
    fail(draft, place, fmt::format("more than {} needs between stages", needs_max),
         "where two matrices share no axis, each stage of one needs all of the other");
    return false;
  }

  static void keep_first_of_each(Places& needs) {
    std::set<std::uint32_t> seen;
    std::erase_if(needs, [&seen](std::uint32_t need) { return !seen.insert(need).second; });
  }

  const std::vector<StageDraft>& drafts_;
  YamlProblems& problems_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
  std::map<std::string, Places> groups_;
  std::vector<std::string> titles_;
  std::map<std::pair<std::string, std::vector<std::string>>, ByValues> indexes_;
  std::set<std::pair<YamlPlace, std::string>> missing_;
  std::size_t needs_ = 0;
  bool fine_ = true;
};

}  // namespace

std::optional<DraftNeeds> resolve_needs(const std::vector<StageDraft>& drafts,
                                        YamlProblems& problems) {
  return NeedResolver(drafts, problems).run();
}

}  // namespace nightshift
