#include <fmt/format.h>

#include <algorithm>

#include "schema/json.h"
#include "stages/model_io/files.h"
#include "stages/text/tokenizer_parts.h"

namespace nightshift {
namespace {

constexpr std::uint64_t file_bytes_max = 512u << 20;

struct Around {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

Error unsupported(const std::string& where, std::string what) {
  return Error{ErrorCode::unsupported, std::move(what), where, ""};
}

const Json& member(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

// TemplateProcessing: the special tokens before and behind the one text, and their ids.
Status read_template(const Json& json, const std::string& where, Around& around) {
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const Json* single, reader.array("single"));
  bool behind = false;
  for (const Json& item : *single) {
    const JsonReader step(item, where);
    if (step.has("Sequence")) {
      behind = true;
      continue;
    }
    NS_TRY_ASSIGN(const Json* token, step.object("SpecialToken"));
    NS_TRY_ASSIGN(const std::string name, JsonReader(*token, where).string("id"));
    NS_TRY_ASSIGN(const Json* known, reader.object("special_tokens"));
    NS_TRY_ASSIGN(const Json* entry, JsonReader(*known, where).object(name.c_str()));
    NS_TRY_ASSIGN(const Json* ids, JsonReader(*entry, where).array("ids"));
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
        return Error{ErrorCode::invalid_argument,
                     fmt::format("\"{}\": \"ids\" are not token ids", name), where, ""};
      }
      (behind ? around.suffix : around.prefix).push_back(id.get<TokenId>());
    }
  }
  return {};
}

// Roberta and Bert: ["</s>", 2] behind and ["<s>", 0] in front.
Status read_pair(const Json& json, const char* key, const std::string& where,
                 std::vector<TokenId>& ids) {
  NS_TRY_ASSIGN(const Json* pair, JsonReader(json, where).array(key));
  if (pair->size() != 2 || !(*pair)[1].is_number_unsigned() ||
      (*pair)[1].get<std::uint64_t>() > INT32_MAX) {
    return Error{ErrorCode::invalid_argument, fmt::format("\"{}\" is not a token and its id", key),
                 where, ""};
  }
  ids.push_back((*pair)[1].get<TokenId>());
  return {};
}

Status read_post_processor(const Json& json, const std::string& where, Around& around) {
  if (json.is_null()) return {};
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const std::string type, reader.string("type"));
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return read_template(json, where, around);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    NS_TRY(read_pair(json, "cls", where, around.prefix));
    return read_pair(json, "sep", where, around.suffix);
  }
  if (type == "Sequence") {
    NS_TRY_ASSIGN(const Json* steps, reader.array("processors"));
    for (const Json& step : *steps) NS_TRY(read_post_processor(step, where, around));
    return {};
  }
  return unsupported(where,
                     fmt::format("post_processor \"{}\" is not supported", type.substr(0, 80)));
}

Status check_decoder(const Json& json, const std::string& where) {
  if (json.is_null()) return {};
  NS_TRY_ASSIGN(const std::string type, JsonReader(json, where).string("type"));
  if (type == "ByteLevel") return {};
  return unsupported(
      where, fmt::format("decoder \"{}\" is not supported, only ByteLevel", type.substr(0, 80)));
}

// An added token may repeat an entry of the vocabulary, but not take another one's id.
Status check_added(const AddedToken& token, const BpeModel& bpe, const std::string& where) {
  const auto at = static_cast<std::size_t>(token.id);
  if (at >= bpe.tokens().size() || bpe.tokens()[at].empty()) return {};
  if (bpe.tokens()[at] == token.content) return {};
  // Written in the byte alphabet in the vocabulary and plainly in the list, or the other way round.
  if (bpe.find(token.content) == token.id) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("added token \"{}\" has the id {} of another token",
                           token.content.substr(0, 80), token.id),
               where, ""};
}

bool is_known(const Tokenizer& tokenizer, TokenId id) {
  return !tokenizer.token_bytes(id).empty();
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& where) {
  NS_TRY_ASSIGN(const Json file, parse_json(json, where));
  const JsonReader reader(file, where);
  NS_TRY_ASSIGN(const Json* model, reader.object("model"));
  NS_TRY_ASSIGN(BpeModel bpe, BpeModel::parse(*model, where + ": \"model\""));
  NS_TRY_ASSIGN(PreTokenizer splitter, PreTokenizer::parse(member(file, "pre_tokenizer"), where));
  NS_TRY_ASSIGN(Normalizer normalizer, Normalizer::parse(member(file, "normalizer"), where));
  NS_TRY(check_decoder(member(file, "decoder"), where + ": \"decoder\""));
  auto parts = std::make_shared<Parts>(std::move(bpe), std::move(splitter), std::move(normalizer));
  parts->size = static_cast<std::int64_t>(parts->bpe.tokens().size());
  NS_TRY_ASSIGN(parts->added, parse_added_tokens(member(file, "added_tokens"), where));
  for (std::size_t i = 0; i < parts->added.size(); ++i) {
    const AddedToken& token = parts->added[i];
    NS_TRY(check_added(token, parts->bpe, where));
    parts->added_by_id.emplace(token.id, i);
    parts->size = std::max<std::int64_t>(parts->size, std::int64_t{token.id} + 1);
    if (token.special) parts->bpe.hide(token.id);
    if (!token.normalized) {
      parts->raw_finder.add(token, token.content);
      continue;
    }
    NS_TRY_ASSIGN(const std::string pattern, parts->normalizer.apply(token.content));
    parts->normalized_finder.add(token, pattern);
  }
  Around around;
  NS_TRY(
      read_post_processor(member(file, "post_processor"), where + ": \"post_processor\"", around));
  parts->prefix = std::move(around.prefix);
  parts->suffix = std::move(around.suffix);
  Tokenizer tokenizer(parts);
  for (const auto* ids : {&parts->prefix, &parts->suffix}) {
    for (const TokenId id : *ids) {
      if (is_known(tokenizer, id)) continue;
      return Error{ErrorCode::invalid_argument,
                   fmt::format("\"post_processor\" puts token {}, which does not exist", id), where,
                   ""};
    }
  }
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  NS_TRY_ASSIGN(const std::string text, read_file(path, file_bytes_max));
  return parse(text, path);
}

Result<Tokenizer> Tokenizer::open(const std::string& folder) {
  NS_TRY_ASSIGN(const Tokenizer tokenizer, load(join_path(folder, "tokenizer.json")));
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  if (!file_exists(config_path)) return tokenizer;
  NS_TRY_ASSIGN(const std::string text, read_file(config_path, file_bytes_max));
  NS_TRY_ASSIGN(const Json config, parse_json(text, config_path));
  const JsonReader reader(config, config_path);
  NS_TRY_ASSIGN(const bool add_bos, reader.boolean_or("add_bos_token", false));
  if (!add_bos || !tokenizer.prefix().empty()) return tokenizer;
  // A token is written as text, or as an object with its flags.
  const Json& bos = member(config, "bos_token");
  NS_TRY_ASSIGN(const std::string name, bos.is_object()
                                            ? JsonReader(bos, config_path).string("content")
                                            : reader.string("bos_token"));
  const auto id = tokenizer.find(name);
  if (!id) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"bos_token\" \"{}\" is not in tokenizer.json", name.substr(0, 80)),
                 config_path, ""};
  }
  // Nobody else holds these parts yet.
  std::const_pointer_cast<Parts>(tokenizer.parts_)->prefix.push_back(*id);
  return tokenizer;
}

}  // namespace nightshift
