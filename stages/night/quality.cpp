#include "stages/night/quality.h"

#include <algorithm>
#include <cmath>

#include "schema/json.h"
#include "stages/engine/scoring.h"

namespace nightshift {

namespace {

Result<std::map<std::string, std::string>> text_map(const Json& params, const char* key,
                                                    const std::string& where) {
  std::map<std::string, std::string> texts;
  const JsonReader reader(params, where);
  if (!reader.has(key)) return texts;
  NS_TRY_ASSIGN(const Json* object, reader.object(key));
  for (const auto& [name, value] : object->items()) {
    if (!value.is_string()) {
      return Error{ErrorCode::invalid_argument, std::string(key) + "." + name + " is not a path",
                   where, ""};
    }
    texts[name] = value.get<std::string>();
  }
  return texts;
}

Result<std::vector<EncodedItem>> encode_items(const TextModel& text, const std::string& path) {
  NS_TRY_ASSIGN(const auto items, read_choice_items(path));
  std::vector<EncodedItem> encoded;
  for (const ChoiceItem& item : items) {
    NS_TRY_ASSIGN(EncodedItem one, text.encode(item));
    encoded.push_back(std::move(one));
  }
  return encoded;
}

Status measure_accuracy(Engine& engine, const TextModel& text, const std::string& path,
                        StageReporter& report, QualityResult& result) {
  NS_TRY_ASSIGN(const auto items, encode_items(text, path));
  std::vector<ScoreRequest> requests;
  for (const EncodedItem& item : items) requests.push_back({item.prompt, item.choices});
  const auto total = static_cast<std::int64_t>(items.size());
  NS_TRY_ASSIGN(const auto scores, score_continuations(engine, requests, [&](std::size_t done) {
                  report.progress(static_cast<std::int64_t>(done), total, "items");
                }));
  for (std::size_t n = 0; n < items.size(); ++n) {
    std::vector<double> per_token;
    for (std::size_t c = 0; c < scores[n].size(); ++c) {
      per_token.push_back(scores[n][c] / static_cast<double>(items[n].choices[c].size()));
    }
    const ItemScore score = score_item(per_token, items[n].answer);
    result.item_scores[items[n].id] = score.share;
    for (const std::string& group : {items[n].group, std::string("all")}) {
      GroupScore& sum = result.accuracy[group];
      sum.accuracy += score.share;
      sum.items += 1;
      sum.ties += score.is_tie ? 1 : 0;
    }
  }
  for (auto& [group, sum] : result.accuracy) {
    sum.accuracy /= sum.items;
    sum.standard_error = std::sqrt(sum.accuracy * (1 - sum.accuracy) / sum.items);
  }
  return {};
}

// Sum of negative log-likelihoods of the answers in one file, and their tokens.
struct Loss {
  double nats = 0;
  std::int64_t tokens = 0;
};

Result<Loss> measure_loss(Engine& engine, const TextModel& text, const std::string& path,
                          StageReporter& report) {
  NS_TRY_ASSIGN(const auto chats, read_chats(path));
  std::vector<ScoreRequest> requests;
  Loss loss;
  const auto longest = static_cast<std::size_t>(
      std::min(engine.config().max_position_embeddings, engine.options().kv_tokens));
  for (const ChatSample& chat : chats) {
    NS_TRY_ASSIGN(EncodedChat encoded, text.encode(chat));
    if (encoded.ids.size() > longest) encoded.ids.resize(longest);
    if (encoded.answer_begin == 0 || encoded.answer_begin >= encoded.ids.size()) continue;
    const auto split = encoded.ids.begin() + static_cast<std::ptrdiff_t>(encoded.answer_begin);
    requests.push_back({{encoded.ids.begin(), split}, {{split, encoded.ids.end()}}});
    loss.tokens += encoded.ids.end() - split;
  }
  if (requests.empty()) {
    return Error{ErrorCode::invalid_argument, "no chat ends with an answer of the assistant", path,
                 "perplexity is taken on answers"};
  }
  NS_TRY_ASSIGN(const auto scores, score_continuations(engine, requests, [&](std::size_t done) {
                  report.progress(static_cast<std::int64_t>(done),
                                  static_cast<std::int64_t>(requests.size()), "chats");
                }));
  for (const auto& score : scores) loss.nats -= score.front();
  return loss;
}

}  // namespace

Result<QualitySpec> quality_spec_from(const Json& params, const std::string& where) {
  QualitySpec spec;
  const JsonReader reader(params, where);
  NS_TRY_ASSIGN(spec.tasks, reader.string_or("tasks", ""));
  NS_TRY_ASSIGN(spec.heldout, text_map(params, "heldout", where));
  if (!reader.has("groups")) return spec;
  NS_TRY_ASSIGN(const Json* groups, reader.object("groups"));
  for (const auto& [name, list] : groups->items()) {
    for (const Json& group : list) {
      if (!group.is_string()) {
        return Error{ErrorCode::invalid_argument,
                     "groups." + name + " holds something that is no text", where, ""};
      }
      spec.groups[name].push_back(group.get<std::string>());
    }
  }
  return spec;
}

ItemScore score_item(const std::vector<double>& scores, std::size_t answer) {
  const double best = *std::max_element(scores.begin(), scores.end());
  const auto equal = std::count(scores.begin(), scores.end(), best);
  if (scores[answer] != best) return {0.0, false};
  return {1.0 / static_cast<double>(equal), equal > 1};
}

Result<std::unique_ptr<Engine>> load_for_scoring(const std::string& checkpoint) {
  EngineOptions options;
  options.logit_rows_max = 512;
  options.kv_tokens = 16384;
  return Engine::load(checkpoint, options);
}

Result<QualityResult> measure_quality(Engine& engine, const TextModel& text,
                                      const QualitySpec& spec, StageReporter& report) {
  QualityResult result;
  if (!spec.tasks.empty()) {
    report.phase("accuracy");
    NS_TRY(measure_accuracy(engine, text, spec.tasks, report, result));
  }
  Loss all;
  for (const auto& [set, path] : spec.heldout) {
    report.phase("perplexity of " + set);
    NS_TRY_ASSIGN(const Loss loss, measure_loss(engine, text, path, report));
    result.perplexity[set] = std::exp(loss.nats / static_cast<double>(loss.tokens));
    all.nats += loss.nats;
    all.tokens += loss.tokens;
  }
  if (all.tokens > 0) {
    result.perplexity["all"] = std::exp(all.nats / static_cast<double>(all.tokens));
  }
  return result;
}

void report_quality(const QualityResult& quality, const std::string& digest, StageReporter& report,
                    Measurement& numbers) {
  for (const auto& [group, score] : quality.accuracy) {
    numbers.accuracy[group] = score.accuracy;
    report.metric("accuracy", score.accuracy, "fraction", digest, group);
    report.metric("accuracy_standard_error", score.standard_error, "fraction", digest, group);
    report.metric("accuracy_items", score.items, "items", digest, group);
    if (score.ties > 0) report.metric("accuracy_ties", score.ties, "items", digest, group);
  }
  for (const auto& [set, value] : quality.perplexity) {
    numbers.perplexity[set] = value;
    report.metric("perplexity", value, "", digest, set);
  }
}

}  // namespace nightshift
