#include "coordinator/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "schema/text.h"

namespace nightshift {
namespace {

// Ends the parsing from inside yaml-cpp; caught in parse_yaml.
struct Stop {
  YamlProblem problem;
};

YamlPlace place_of(const YAML::Mark& mark) {
  if (mark.is_null()) return {1, 1};
  return {static_cast<std::size_t>(std::max(mark.line, 0)) + 1,
          static_cast<std::size_t>(std::max(mark.column, 0)) + 1};
}

// Builds the tree from events. Working on events and not on yaml-cpp's own nodes keeps duplicate
// keys visible, shares aliased nodes instead of copying them, and lets the depth limit end the
// parser's recursion from within, long before the stack does.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const YamlLimits& limits, std::vector<YamlProblem>& problems)
      : limits_(limits), problems_(problems) {}

  YamlRef root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto node = make_node(YamlNode::Kind::null, mark);
    // Where nothing stands, yaml-cpp gives the place of what comes next.
    if (!open_.empty() && open_.back().key) node->place = open_.back().key->place;
    remember(anchor, node);
    add(node);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) {
      stop(place_of(mark), "an alias of something that is not complete", "it would contain itself");
    }
    count(it->second->weight, place_of(mark));
    add(it->second, place_of(mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = make_node(YamlNode::Kind::scalar, mark);
    // yaml-cpp marks plain scalars with "?" and quoted or block ones with "!".
    node->quoted = tag == "!";
    if (!node->quoted) refuse_tag(tag, node->place);
    node->text = value;
    remember(anchor, node);
    add(node);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map that is not complete.
  struct Open {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::optional<YamlEntry> key;                          // map: the key whose value comes next
    bool key_is_merge = false;
    std::map<std::string, YamlPlace> seen;                 // map: keys so far
    std::vector<std::pair<YamlPlace, YamlRef>> merges;     // map: values of <<
  };

  [[noreturn]] static void stop(YamlPlace place, std::string what, std::string hint = "") {
    throw Stop{{place, std::move(what), std::move(hint)}};
  }

  static void refuse_tag(const std::string& tag, YamlPlace place) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    stop(place, "tag `" + clip_utf8(tag, 80) + "`", "values here need no tags; remove it");
  }

  void count(std::size_t nodes, YamlPlace place) {
    if (nodes > limits_.nodes_max - nodes_) {
      stop(place,
           "more than " + std::to_string(limits_.nodes_max) + " values after expanding aliases",
           "a job file is far smaller; look for anchors inside anchors");
    }
    nodes_ += nodes;
  }

  std::shared_ptr<YamlNode> make_node(YamlNode::Kind kind, const YAML::Mark& mark) {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->place = place_of(mark);
    count(1, node->place);
    return node;
  }

  void remember(YAML::anchor_t anchor, const YamlRef& node) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    auto node = make_node(kind, mark);
    refuse_tag(tag, node->place);
    if (open_.size() >= limits_.depth_max) {
      stop(node->place, "nested deeper than " + std::to_string(limits_.depth_max) + " levels");
    }
    Open level;
    level.node = std::move(node);
    level.anchor = anchor;
    open_.push_back(std::move(level));
  }

  void close() {
    Open level = std::move(open_.back());
    open_.pop_back();
    for (const auto& [place, merged] : level.merges) apply_merge(level, place, *merged);
    for (const YamlRef& item : level.node->items) level.node->weight += item->weight;
    for (const YamlEntry& entry : level.node->entries) level.node->weight += entry.value->weight;
    remember(level.anchor, level.node);
    add(level.node);
  }

  void add(const YamlRef& node) { add(node, node->place); }

  void add(const YamlRef& node, YamlPlace place) {
    if (open_.empty()) {
      root_ = node;
      return;
    }
    Open& level = open_.back();
    if (level.node->kind == YamlNode::Kind::list) {
      level.node->items.push_back(node);
    } else if (!level.key) {
      take_key(level, *node, place);
    } else {
      take_value(level, node);
    }
  }

  static void take_key(Open& level, const YamlNode& node, YamlPlace place) {
    if (node.kind == YamlNode::Kind::null) stop(place, "a key is missing before `:`");
    if (node.kind != YamlNode::Kind::scalar) stop(place, "a key that is a list or a map");
    // Only a plain << merges; in quotes it is a key like any other.
    level.key_is_merge = !node.quoted && node.text == "<<";
    level.key = YamlEntry{node.text, place, nullptr};
  }

  void take_value(Open& level, const YamlRef& node) {
    YamlEntry entry = std::move(*level.key);
    level.key.reset();
    if (level.key_is_merge) {
      level.merges.emplace_back(entry.place, node);
      return;
    }
    entry.value = node;
    const auto [it, fresh] = level.seen.emplace(entry.key, entry.place);
    if (!fresh) {
      problems_.push_back({entry.place,
                           "key `" + clip_utf8(entry.key, 80) + "` is there twice: lines " +
                               std::to_string(it->second.line) + " and " +
                               std::to_string(entry.place.line),
                           "remove one; it is not for us to guess which one counts"});
      return;
    }
    level.node->entries.push_back(std::move(entry));
  }

  // Keys of the map itself win, then those of earlier merges (yaml.org/type/merge.html).
  void apply_merge(Open& level, YamlPlace place, const YamlNode& merged) {
    if (merged.kind == YamlNode::Kind::list) {
      for (const YamlRef& item : merged.items) {
        if (item->kind != YamlNode::Kind::map) stop(place, "<< merges maps only");
        apply_merge(level, place, *item);
      }
      return;
    }
    if (merged.kind != YamlNode::Kind::map) stop(place, "<< merges maps only");
    for (const YamlEntry& entry : merged.entries) {
      if (!level.seen.emplace(entry.key, entry.place).second) continue;
      count(entry.value->weight, place);
      level.node->entries.push_back(entry);
    }
  }

  const YamlLimits limits_;
  std::vector<YamlProblem>& problems_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlRef> anchors_;
  YamlRef root_;
  std::size_t nodes_ = 0;
};

YamlPlace place_at(const std::string& text, std::size_t offset) {
  YamlPlace place{1, 1};
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
  }
  return place;
}

// yaml-cpp reads a run of opening brackets to its end before it says what the first one is: without
// this, megabytes of them cost seconds and a gigabyte. The builder finds every other nesting.
std::optional<YamlProblem> check_brackets(const std::string& text, std::size_t depth_max) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    run = text[i] == '[' || text[i] == '{' ? run + 1 : 0;
    if (run > depth_max) {
      return YamlProblem{place_at(text, i),
                         "nested deeper than " + std::to_string(depth_max) + " levels", ""};
    }
  }
  return std::nullopt;
}

// What yaml-cpp would guess about (it reads UTF-16 and -32 too) or let pass.
std::optional<YamlProblem> check_bytes(const std::string& text) {
  const std::size_t invalid = first_invalid_utf8(text);
  if (invalid != std::string::npos) {
    return YamlProblem{place_at(text, invalid), "not valid UTF-8", "save the file as UTF-8"};
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F) {
      return YamlProblem{place_at(text, i), "a control character (" + std::to_string(byte) + ")",
                         "is this a text file?"};
    }
  }
  return std::nullopt;
}

std::string hint_for(const std::string& message) {
  // `ttft: >= 3` begins a folded block for YAML.
  if (message.find("block scalar") != std::string::npos) {
    return "a text that begins with > or | stands in quotes: \">= 3.0x\"";
  }
  for (const char* word : {"anchor", "tag", "directive", "alias"}) {
    if (message.find(word) != std::string::npos) return "";
  }
  return "texts with : # or one of > | * & ! % @ ` at their front stand in quotes";
}

}  // namespace

const YamlEntry* YamlNode::find(const std::string& key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

YamlDocument parse_yaml(const std::string& text, YamlLimits limits) {
  YamlDocument document;
  const auto fail = [&](YamlProblem problem) {
    document.root = nullptr;
    document.problems.push_back(std::move(problem));
    return document;
  };
  if (auto problem = check_bytes(text)) return fail(std::move(*problem));
  if (auto problem = check_brackets(text, limits.depth_max)) return fail(std::move(*problem));
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder(limits, document.problems);
    if (!parser.HandleNextDocument(builder) || !builder.root()) {
      return fail({{1, 1}, "the file is empty", ""});
    }
    std::vector<YamlProblem> ignored;
    TreeBuilder second(limits, ignored);
    if (parser.HandleNextDocument(second)) {
      const YamlPlace place = second.root() ? second.root()->place : YamlPlace{1, 1};
      return fail({place, "a second document after `---`", "one job a file"});
    }
    document.root = builder.root();
    return document;
  } catch (const Stop& stopped) {
    return fail(stopped.problem);
  } catch (const YAML::Exception& problem) {
    return fail({place_of(problem.mark), clip_utf8(problem.msg, 200), hint_for(problem.msg)});
  } catch (const std::exception& problem) {
    return fail({{1, 1}, std::string("cannot be read as YAML: ") + problem.what(), ""});
  }
}

}  // namespace nightshift
