#include "schema/msgpack_scan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nightshift::codec {
namespace {

// An open list or map: how many values are still to come, keys and values of a map counted alone.
struct Open {
  std::uint64_t left = 0;
  bool is_map = false;
};

// What one leading byte says.
struct Item {
  enum class Kind { plain, text, list, map, bad };
  Kind kind = Kind::bad;
  std::uint64_t fixed = 0;     // payload bytes, or items, known from the byte itself
  int length_bytes = 0;        // width of a length that follows; its value adds to `fixed`
};

Item classify(unsigned char lead) {
  using Kind = Item::Kind;
  if (lead <= 0x7F || lead >= 0xE0) return {Kind::plain, 0, 0};
  if (lead <= 0x8F) return {Kind::map, lead & 0x0Fu, 0};
  if (lead <= 0x9F) return {Kind::list, lead & 0x0Fu, 0};
  if (lead <= 0xBF) return {Kind::text, lead & 0x1Fu, 0};
  switch (lead) {
    case 0xC0:
    case 0xC2:
    case 0xC3: return {Kind::plain, 0, 0};
    case 0xC4: return {Kind::plain, 0, 1};
    case 0xC5: return {Kind::plain, 0, 2};
    case 0xC6: return {Kind::plain, 0, 4};
    case 0xCC:
    case 0xD0: return {Kind::plain, 1, 0};
    case 0xCD:
    case 0xD1: return {Kind::plain, 2, 0};
    case 0xCA:
    case 0xCE:
    case 0xD2: return {Kind::plain, 4, 0};
    case 0xCB:
    case 0xCF:
    case 0xD3: return {Kind::plain, 8, 0};
    case 0xD9: return {Kind::text, 0, 1};
    case 0xDA: return {Kind::text, 0, 2};
    case 0xDB: return {Kind::text, 0, 4};
    case 0xDC: return {Kind::list, 0, 2};
    case 0xDD: return {Kind::list, 0, 4};
    case 0xDE: return {Kind::map, 0, 2};
    case 0xDF: return {Kind::map, 0, 4};
    default: return {};
  }
}

class Scan {
 public:
  Scan(std::string_view body, const std::string& where) : body_(body), where_(where) {}

  Status run() {
    std::vector<Open> open;
    open.push_back({1, false});
    while (!open.empty()) {
      if (open.back().left == 0) {
        open.pop_back();
        continue;
      }
      const bool is_key = open.back().is_map && open.back().left % 2 == 0;
      --open.back().left;
      if (++nodes_ > msgpack_nodes_max) {
        return bad("more than " + std::to_string(msgpack_nodes_max) + " values");
      }
      NS_TRY_ASSIGN(const Item item, next(is_key));
      if (item.kind != Item::Kind::list && item.kind != Item::Kind::map) continue;
      if (open.size() > msgpack_depth_max) {
        return bad("nested deeper than " + std::to_string(msgpack_depth_max));
      }
      const bool is_map = item.kind == Item::Kind::map;
      open.push_back({is_map ? item.fixed * 2 : item.fixed, is_map});
    }
    if (at_ != body_.size()) return bad("bytes follow the end of the value");
    return {};
  }

 private:
  Error bad(const std::string& what) const {
    return Error{ErrorCode::invalid_argument,
                 "the body is not MessagePack that is accepted here: " + what + " at byte " +
                     std::to_string(at_),
                 where_, ""};
  }

  Result<Item> next(bool is_key) {
    if (at_ >= body_.size()) return bad("it ends too early");
    Item item = classify(static_cast<unsigned char>(body_[at_]));
    if (item.kind == Item::Kind::bad) return bad("an unknown type");
    if (is_key && item.kind != Item::Kind::text) return bad("a map key that is not text");
    ++at_;
    if (body_.size() - at_ < static_cast<std::size_t>(item.length_bytes)) {
      return bad("it ends too early");
    }
    std::uint64_t length = 0;
    for (int i = 0; i < item.length_bytes; ++i) {
      length = length << 8 | static_cast<unsigned char>(body_[at_++]);
    }
    item.fixed += length;
    // A list of n items takes at least n bytes, a map of n entries at least 2n.
    const std::uint64_t least = item.kind == Item::Kind::map ? item.fixed * 2 : item.fixed;
    if (least > body_.size() - at_) return bad("a length beyond the end");
    if (item.kind == Item::Kind::plain || item.kind == Item::Kind::text) at_ += item.fixed;
    return item;
  }

  std::string_view body_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace

Status check_msgpack(std::string_view body, const std::string& where) {
  return Scan(body, where).run();
}

}  // namespace nightshift::codec
