#include "stages/text/normalizer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "schema/json.h"

namespace nightshift {
namespace {

constexpr std::array<std::pair<const char*, NormalForm>, 4> form_names = {{
    {"NFC", NormalForm::nfc},
    {"NFD", NormalForm::nfd},
    {"NFKC", NormalForm::nfkc},
    {"NFKD", NormalForm::nfkd},
}};

}  // namespace

Result<Normalizer> Normalizer::parse(const Json& json, const std::string& where) {
  Normalizer normalizer;
  if (json.is_null()) return normalizer;
  const JsonReader reader(json, where + ": \"normalizer\"");
  NS_TRY_ASSIGN(const std::string type, reader.string("type"));
  for (const auto& [name, form] : form_names) {
    if (type != name) continue;
    normalizer.forms_.push_back(form);
    return normalizer;
  }
  if (type != "Sequence") {
    return Error{ErrorCode::unsupported,
                 fmt::format("normalizer \"{}\" is not supported, only NFC, NFD, NFKC and NFKD",
                             type.substr(0, 80)),
                 where, ""};
  }
  NS_TRY_ASSIGN(const Json* steps, reader.array("normalizers"));
  for (const Json& step : *steps) {
    NS_TRY_ASSIGN(const Normalizer inner, parse(step, where));
    normalizer.forms_.insert(normalizer.forms_.end(), inner.forms_.begin(), inner.forms_.end());
  }
  return normalizer;
}

bool Normalizer::leaves_alone(std::string_view text) const {
  if (forms_.empty() || is_ascii(text)) return true;
  return forms_.size() == 1 && forms_.front() == NormalForm::nfc && is_plain_in_nfc(text);
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const NormalForm form : forms_) {
    NS_TRY_ASSIGN(out, normalize(out, form));
  }
  return out;
}

}  // namespace nightshift
