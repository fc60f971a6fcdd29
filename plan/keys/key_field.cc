#include "plan/keys/key_field.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Kind = FieldForm::Kind;

// Words of other systems, in lower case, stand beside weft's. No word means two things.
constexpr std::pair<absl::string_view, absl::string_view> kOtherWords[] = {
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"float32", "fp32"},
    {"float8", "fp8"},
    {"interleaved1f1b", "interleaved_1f1b"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_bnb_8bit", "adamw_8bit"},
    {"adamw8bit", "adamw_8bit"},
    {"int16", "uint16"},  // ids are not negative
    {"int32", "uint32"},
};

// Returns weft's word; `word` itself if it is none of theirs.
absl::string_view OurWord(absl::string_view word) {
  for (const auto& [theirs, ours] : kOtherWords) {
    if (word == theirs) return ours;
  }
  return word;
}

// Values that other systems have and weft does not.
constexpr absl::string_view kNamesNotBuilt[] = {
    "adam",      "muon",      "wsd",      "zbvzerobubble", "zb_v", "interleavedzerobubble",
    "loopedbfs", "dualpipev", "dualpipe", "megatron",      "jsonl"};

// A key of the maps of a list.
template <typename T>
struct ItemKey {
  absl::string_view name;
  KeyField (*field)(T&);
};

// The reader of a file bounds how deep it is.
PassedOn PassedOnOf(const Value& value) {
  PassedOn part;
  if (value.is_scalar()) {
    part.kind = value.quoted ? PassedOn::Kind::kText : PassedOn::Kind::kWord;
    const bool is_word =
        ParseNumber(value.scalar) || value.word() == "true" || value.word() == "false";
    if (!is_word) part.kind = PassedOn::Kind::kText;
    part.text = part.kind == PassedOn::Kind::kWord ? std::string(value.word()) : value.scalar;
  }
  if (value.is_list()) part.kind = PassedOn::Kind::kList;
  if (value.is_map()) part.kind = PassedOn::Kind::kMap;
  for (const Value& item : value.items) part.parts.push_back(PassedOnOf(item));
  for (const auto& [name, node] : value.entries) {
    part.names.push_back(name);
    part.parts.push_back(PassedOnOf(node));
  }
  return part;
}

Value ValueOf(const PassedOn& part) {
  Value value;
  if (part.kind == PassedOn::Kind::kWord) value = Value::Scalar(part.text);
  if (part.kind == PassedOn::Kind::kText) value = Value::Text(part.text);
  if (part.kind == PassedOn::Kind::kList) value = Value::List({});
  if (part.kind == PassedOn::Kind::kMap) value = Value::Map();
  for (size_t i = 0; i < part.parts.size(); ++i) {
    if (part.kind == PassedOn::Kind::kList) value.items.push_back(ValueOf(part.parts[i]));
    if (part.kind == PassedOn::Kind::kMap) {
      value.entries.push_back({part.names[i], ValueOf(part.parts[i])});
    }
  }
  return value;
}

absl::Span<const ItemKey<DataSource>> ItemKeys(const DataSource&) {
  static constexpr ItemKey<DataSource> kFields[] = {
      {"path", [](DataSource& source) -> KeyField { return &source.path; }}};
  return kFields;
}

absl::Span<const ItemKey<ParamGroup>> ItemKeys(const ParamGroup&) {
  static constexpr ItemKey<ParamGroup> kFields[] = {
      {"params", [](ParamGroup& group) -> KeyField { return &group.params; }},
      {"weight_decay", [](ParamGroup& group) -> KeyField { return &group.weight_decay; }}};
  return kFields;
}

absl::Span<const ItemKey<MatmulPoint>> ItemKeys(const MatmulPoint&) {
  static constexpr ItemKey<MatmulPoint> kFields[] = {
      {"m", [](MatmulPoint& point) -> KeyField { return &point.m; }},
      {"n", [](MatmulPoint& point) -> KeyField { return &point.n; }},
      {"k", [](MatmulPoint& point) -> KeyField { return &point.k; }},
      {"precision", [](MatmulPoint& point) -> KeyField { return &point.precision; }},
      {"flops_per_s", [](MatmulPoint& point) -> KeyField { return &point.flops_per_s; }}};
  return kFields;
}

absl::Span<const ItemKey<CollectivePoint>> ItemKeys(const CollectivePoint&) {
  static constexpr ItemKey<CollectivePoint> kFields[] = {
      {"collective", [](CollectivePoint& point) -> KeyField { return &point.collective; }},
      {"ranks", [](CollectivePoint& point) -> KeyField { return &point.ranks; }},
      {"bytes", [](CollectivePoint& point) -> KeyField { return &point.bytes; }},
      {"seconds", [](CollectivePoint& point) -> KeyField { return &point.seconds; }},
      {"nodes", [](CollectivePoint& point) -> KeyField { return &point.nodes; }}};
  return kFields;
}

// "{m, n, k}"
template <typename T>
std::string FormOfItems(absl::Span<const ItemKey<T>> keys) {
  return absl::StrCat("{",
                      absl::StrJoin(keys, ", ",
                                    [](std::string* text, const ItemKey<T>& key) {
                                      absl::StrAppend(text, key.name);
                                    }),
                      "}");
}

// Reads one key; the member's type says how.
class Reader {
 public:
  Reader(const ValueReader& values, absl::string_view key, const Value& node,
         std::vector<std::string>* notes)
      : values_(values), key_(key), node_(node), notes_(notes) {}

  void operator()(std::monostate) const {}
  void operator()(bool* field) const { *field = values_.Flag(key_).value_or(*field); }
  void operator()(int* field) const { values_.Read(key_, field); }
  void operator()(int64_t* field) const { values_.Read(key_, field); }
  void operator()(double* field) const { values_.Read(key_, field); }
  void operator()(std::string* field) const { values_.Read(key_, field); }
  void operator()(uint64_t* field) const {
    uint64_t large = 0;  // it may be above what Whole() reads
    if (node_.is_scalar() && !node_.quoted && absl::SimpleAtoi(node_.scalar, &large)) {
      *field = large;
      return;
    }
    const std::optional<int64_t> whole = values_.Whole(key_);
    if (!whole) return;
    if (*whole < 0) {
      values_.Wrong(key_, absl::StrCat(*whole, " is negative; use 0 or more"));
      return;
    }
    *field = static_cast<uint64_t>(*whole);
  }
  void operator()(std::optional<int64_t>* field) const { values_.ReadOrAuto(key_, field); }
  void operator()(std::optional<int>* field) const { values_.ReadOrAuto(key_, field); }
  void operator()(std::optional<bool>* field) const {
    field->reset();
    if (!node_.is_auto()) *field = values_.Flag(key_);
  }
  void operator()(const NumberOrNull& field) const { *field.number = values_.Whole(key_); }
  void operator()(const NumberPair& field) const {
    const bool two = node_.is_list() && node_.items.size() == 2;
    const auto number = [&](size_t i) {
      return two && node_.items[i].is_scalar() ? ParseNumber(node_.items[i].scalar) : std::nullopt;
    };
    const std::optional<double> first = number(0), second = number(1);
    if (!first || !second) return Expected("two numbers: [0.9, 0.95]");
    *field.first = *first;
    *field.second = *second;
  }

  void operator()(const NumberRange& field) const {
    const std::vector<std::string> parts = absl::StrSplit(node_.scalar, ':');
    if (!node_.is_scalar() || parts.size() != 2) {
      *field.least = 0;
      return values_.Read(key_, field.most);
    }
    if (!absl::SimpleAtoi(parts[0], field.least) || !absl::SimpleAtoi(parts[1], field.most) ||
        *field.least < 1) {
      Expected("a number, or MIN:MAX of two, e.g. 2:4");
    }
  }

  template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
  void operator()(E* field) const {
    *field = Word<E>("").value_or(*field);
  }
  template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
  void operator()(std::optional<E>* field) const {
    field->reset();
    if (!node_.is_auto()) *field = Word<E>("auto, ");
  }

  void operator()(std::vector<Recompute>* field) const {
    field->clear();
    if (node_.is_auto()) return;
    std::vector<Recompute> modes;
    const std::vector<absl::string_view> items = ItemsOf(node_, /*are_words=*/true);
    for (const absl::string_view item : items) {
      const absl::StatusOr<Recompute> mode = ParseWord<Recompute>(item, "a recompute mode");
      if (mode.ok()) modes.push_back(*mode);
    }
    if (modes.empty() || modes.size() != items.size()) {
      return Expected(
          absl::StrCat("a list of ", Alternatives(WordsOf(Recompute{})), ", one a stage"));
    }
    *field = std::move(modes);
  }
  void operator()(std::optional<std::vector<int64_t>>* field) const {
    field->reset();
    if (node_.is_auto()) return;
    std::vector<int64_t> numbers;
    bool sound = node_.is_list() || node_.is_scalar();
    const bool even = node_.is_scalar() && node_.scalar == "even";
    const std::vector<absl::string_view> items =
        even ? std::vector<absl::string_view>() : ItemsOf(node_, /*are_words=*/false);
    for (const absl::string_view item : items) sound = sound && AddRun(item, numbers);
    if (!sound || numbers.empty() != even)
      return Expected("auto, even or a list of numbers, one a stage");
    *field = std::move(numbers);
  }
  void operator()(std::vector<std::string>* field) const {
    if (!node_.is_list()) return Expected("all-linear or a list such as [q_proj, v_proj]");
    field->clear();
    for (const Value& item : node_.items) {
      if (std::find(field->begin(), field->end(), item.scalar) == field->end()) {
        field->push_back(item.scalar);
      }
    }
  }
  void operator()(std::map<std::string, std::string>* field) const {
    if (!node_.is_map()) return Expected("a map");
    for (const auto& [name, value] : node_.entries) {
      if (value.is_scalar()) {
        (*field)[name] = value.scalar;
      } else {
        values_.Wrong(absl::StrCat(key_, ".", name),
                      absl::StrCat("found ", value.Found(), "; expected a text"));
      }
    }
  }
  void operator()(PassedOn* field) const {
    if (!node_.is_map()) return Expected("a map");
    *field = node_.entries.empty() ? PassedOn() : PassedOnOf(node_);
  }
  template <typename T>
  void operator()(std::vector<T>* field) const {
    if (!node_.is_list())
      return Expected(absl::StrCat("a list of maps: ", FormOfItems(ItemKeys(T{}))));
    for (size_t i = 0; i < node_.items.size(); ++i) {
      const ValueReader item = values_.Item(key_, node_.items[i], i);
      field->push_back(ReadItem<T>(item, node_.items[i]));
    }
  }

 private:
  // The items of a list, as [4, 4, 3] or as plans print it: 4,4,3. A lone number is no list: other
  // systems mean the blocks of every stage by it. Words may be quoted, as JSON has them; numbers
  // not.
  static std::vector<absl::string_view> ItemsOf(const Value& node, bool are_words) {
    std::vector<absl::string_view> items;
    if (node.is_scalar()) {
      items = absl::StrSplit(node.scalar, absl::ByAnyChar("/,"));
      if (items.size() == 1) items.front() = "";
    }
    for (const Value& item : node.items) {
      const bool is_plain = item.is_scalar() && (are_words || !item.quoted);
      items.push_back(is_plain ? absl::string_view(item.scalar) : "");
    }
    return items;
  }

  // Adds "4", or "62x2", which stands for 62 times 2; false: the text is neither.
  static bool AddRun(absl::string_view text, std::vector<int64_t>& numbers) {
    constexpr int64_t kMostStages = 1 << 20;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('x', 1));
    const std::optional<int64_t> times = parts.size() == 2 ? ParseWholeNumber(parts[0]) : 1;
    const std::optional<int64_t> number = ParseWholeNumber(parts.back());
    if (!times || !number || *times < 1 || *times > kMostStages) return false;
    numbers.insert(numbers.end(), static_cast<size_t>(*times), *number);
    return true;
  }

  void Expected(absl::string_view form) const {
    values_.Wrong(key_, absl::StrCat("found ", node_.Found(), "; expected ", form));
  }

  // Reads a map that has exactly the keys of `T`.
  template <typename T>
  T ReadItem(const ValueReader& item, const Value& map) const {
    T value;
    if (!map.is_map()) {
      item.Wrong("", absl::StrCat("found ", map.Found(),
                                  "; expected a map: ", FormOfItems(ItemKeys(T{}))));
      return value;
    }
    std::vector<std::string> known;
    for (const ItemKey<T>& each : ItemKeys(T{})) {
      known.emplace_back(each.name);
      if (!item.Has(each.name)) item.Wrong(each.name, "missing");
      ReadKey(item, each.name, each.field(value), notes_);
    }
    for (const auto& [name, node] : map.entries) item.CheckKnown(name, known);
    return value;
  }

  // However it is spelled: capitals do not count, and other systems' words are read as weft's.
  template <typename E>
  std::optional<E> Word(absl::string_view besides) const {
    const std::optional<std::string> text = values_.Text(key_);
    if (!text) return std::nullopt;
    const std::string lower = absl::AsciiStrToLower(*text);
    const absl::string_view word = OurWord(lower);
    const absl::StatusOr<E> parsed = ParseWord<E>(word, "");
    if (!parsed.ok()) {
      const std::string words = absl::StrCat(besides, Alternatives(WordsOf(E{})));
      if (std::find(std::begin(kNamesNotBuilt), std::end(kNamesNotBuilt), lower) !=
          std::end(kNamesNotBuilt)) {
        values_.Wrong(key_, absl::StrCat(*text, " is not supported yet; use ", words));
      } else {
        values_.Wrong(key_, absl::StrCat("found ", *text, "; expected ", words));
      }
      return std::nullopt;
    }
    if (word != lower && notes_ != nullptr) {
      notes_->push_back(absl::StrCat(values_.PlaceOf(key_).Text(), ": ", key_, ": ", *text,
                                     " is read as ", word));
    }
    return *parsed;
  }

  const ValueReader& values_;
  absl::string_view key_;
  const Value& node_;
  std::vector<std::string>* notes_;
};

// Prints what Reader reads.
struct Printer {
  Value operator()(std::monostate) const { return {}; }
  Value operator()(const bool* field) const { return Value::Flag(*field); }
  Value operator()(const int* field) const { return Value::Whole(*field); }
  Value operator()(const int64_t* field) const { return Value::Whole(*field); }
  Value operator()(const uint64_t* field) const { return Value::Scalar(absl::StrCat(*field)); }
  Value operator()(const double* field) const { return Value::Number(*field); }
  Value operator()(const std::string* field) const {
    return field->empty() ? Value() : Value::Text(*field);
  }
  template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
  Value operator()(const E* field) const {
    return Value::Scalar(WordOf(*field));
  }
  template <typename T>
  Value operator()(const std::optional<T>* field) const {
    return *field ? (*this)(&**field) : Value::Scalar("auto");
  }
  // A format has its own: null says so.
  Value operator()(const std::optional<TokenDtype>* field) const {
    return *field ? Value::Scalar(WordOf(**field)) : Value();
  }
  Value operator()(const NumberOrNull& field) const {
    return *field.number ? Value::Whole(**field.number) : Value();
  }
  Value operator()(const NumberPair& field) const {
    return Value::List({Value::Number(*field.first), Value::Number(*field.second)});
  }
  Value operator()(const NumberRange& field) const {
    if (*field.least == 0) return Value::Whole(*field.most);
    return Value::Text(absl::StrCat(*field.least, ":", *field.most));
  }
  Value operator()(const std::vector<Recompute>* field) const {
    std::vector<Value> items;
    for (const Recompute mode : *field) items.push_back(Value::Scalar(WordOf(mode)));
    return items.empty() ? Value() : Value::List(std::move(items));
  }
  Value operator()(const std::vector<int64_t>* field) const {
    if (field->empty()) return Value::Scalar("even");
    std::vector<Value> items;
    for (const int64_t number : *field) items.push_back(Value::Whole(number));
    return Value::List(std::move(items));
  }
  Value operator()(const std::vector<std::string>* field) const {
    std::vector<Value> items;
    for (const std::string& text : *field) items.push_back(Value::Text(text));
    return Value::List(std::move(items));
  }
  Value operator()(const std::map<std::string, std::string>* field) const {
    Value map = Value::Map();
    for (const auto& [name, text] : *field) map.entries.push_back({name, Value::Text(text)});
    return map;
  }
  Value operator()(const PassedOn* field) const {
    return field->kind == PassedOn::Kind::kNothing ? Value::Map() : ValueOf(*field);
  }
  template <typename T>
  Value operator()(const std::vector<T>* field) const {
    std::vector<Value> items;
    for (T item : *field) {
      Value map = Value::Map();
      for (const ItemKey<T>& key : ItemKeys(item)) {
        map.entries.push_back({std::string(key.name), PrintField(key.field(item))});
      }
      items.push_back(std::move(map));
    }
    return items.empty() ? Value() : Value::List(std::move(items));
  }
};

// A number of a field, and how it is written.
struct Number {
  double value;
  std::string text;
};

// Lists the numbers of a field.
struct Numbers {
  std::vector<Number> operator()(int* field) const {
    return {{static_cast<double>(*field), absl::StrCat(*field)}};
  }
  std::vector<Number> operator()(int64_t* field) const {
    return {{static_cast<double>(*field), absl::StrCat(*field)}};
  }
  std::vector<Number> operator()(double* field) const { return {{*field, NumberText(*field)}}; }
  template <typename T>
  std::vector<Number> operator()(std::optional<T>* field) const {
    return *field ? (*this)(&**field) : std::vector<Number>();
  }
  std::vector<Number> operator()(const NumberPair& field) const {
    return {{*field.first, NumberText(*field.first)}, {*field.second, NumberText(*field.second)}};
  }
  std::vector<Number> operator()(const NumberOrNull& field) const { return (*this)(field.number); }
  std::vector<Number> operator()(const NumberRange& field) const { return (*this)(field.most); }
  template <typename Other>
  std::vector<Number> operator()(Other /*no number*/) const {
    return {};
  }
};

// Says how a field is written.
struct Former {
  FieldForm operator()(std::monostate) const { return {}; }
  FieldForm operator()(const bool*) const { return {Kind::kFlag}; }
  FieldForm operator()(const int*) const { return {Kind::kWhole}; }
  FieldForm operator()(const int64_t*) const { return {Kind::kWhole}; }
  FieldForm operator()(const uint64_t*) const { return {Kind::kWhole}; }
  FieldForm operator()(const double*) const { return {Kind::kNumber}; }
  FieldForm operator()(const std::string*) const { return {Kind::kText}; }
  template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
  FieldForm operator()(const E*) const {
    return {Kind::kWord, false, WordsOf(E{})};
  }
  FieldForm operator()(const std::optional<std::vector<int64_t>>*) const {
    return {Kind::kList, true, {}, Kind::kWhole, "even"};
  }
  template <typename T>
  FieldForm operator()(const std::optional<T>*) const {
    FieldForm form = (*this)(static_cast<const T*>(nullptr));
    form.may_be_auto = true;
    return form;
  }
  FieldForm operator()(const NumberOrNull&) const { return {Kind::kWhole}; }
  FieldForm operator()(const NumberRange&) const {
    FieldForm form{Kind::kWhole};
    form.pattern = "^[0-9]+:[0-9]+$";
    return form;
  }
  FieldForm operator()(const NumberPair&) const { return {Kind::kList, false, {}, Kind::kNumber}; }
  FieldForm operator()(const std::vector<Recompute>*) const {
    return {Kind::kList, true, WordsOf(Recompute{}), Kind::kWord};
  }
  FieldForm operator()(const std::vector<std::string>*) const {
    return {Kind::kList, false, {}, Kind::kText, "all-linear"};
  }
  FieldForm operator()(const std::map<std::string, std::string>*) const { return {Kind::kMap}; }
  FieldForm operator()(const PassedOn*) const { return {Kind::kMap}; }
  FieldForm operator()(const std::vector<DataSource>*) const {
    return {.kind = Kind::kList, .items = Kind::kMap, .may_be_text = true};
  }
  template <typename T>
  FieldForm operator()(const std::vector<T>*) const {
    return {Kind::kList, false, {}, Kind::kMap};
  }
};

}  // namespace

bool Limits::Allow(double number) const {
  const bool high = above_least ? number > least : number >= least;
  const bool low = below_most ? number < most : number <= most;
  return high && low && std::isfinite(number);
}

std::string Limits::Text() const {
  return allowed.empty()
             ? absl::StrCat(static_cast<int64_t>(least), " to ", static_cast<int64_t>(most))
             : std::string(allowed);
}

void ReadKey(const ValueReader& values, absl::string_view key, const KeyField& field,
             std::vector<std::string>* notes) {
  const Value* const node = values.Node(key);
  if (node != nullptr) std::visit(Reader(values, key, *node, notes), field);
}

Value PrintField(const KeyField& field) {
  return std::visit(Printer(), field);
}

std::vector<std::string> OutOfLimits(const KeyField& field, const Limits& limits) {
  std::vector<std::string> texts;
  for (Number& number : std::visit(Numbers(), field)) {
    if (!limits.Allow(number.value)) texts.push_back(std::move(number.text));
  }
  return texts;
}

FieldForm FormOf(const KeyField& field) {
  return std::visit(Former(), field);
}

std::vector<absl::string_view> OtherWords(Words words) {
  std::vector<absl::string_view> others;
  for (const auto& [theirs, ours] : kOtherWords) {
    if (std::find(words.begin(), words.end(), ours) != words.end()) others.push_back(theirs);
  }
  return others;
}

}  // namespace weft
