#include "tests/fuzz/random_message.h"

#include <google/protobuf/descriptor.h>

#include <limits>

namespace weft {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMostDepth = 4;
constexpr size_t kMostRepeated = 4;

int64_t Number(const LikelyValues& likely, Random& random) {
  constexpr int64_t kStrange[] = {0,
                                  1,
                                  2,
                                  -1,
                                  63,
                                  100000,
                                  int64_t{1} << 31,
                                  std::numeric_limits<int32_t>::max(),
                                  std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min()};
  if (!likely.numbers.empty() && !random.Once(3)) {
    return random.Of(absl::MakeConstSpan(likely.numbers));
  }
  return random.Of(absl::MakeConstSpan(kStrange));
}

double Fraction(Random& random) {
  constexpr double kStrange[] = {0,    1,      -1,
                                 0.5,  1e308,  std::numeric_limits<double>::infinity(),
                                 -0.0, 1e-320, std::numeric_limits<double>::quiet_NaN()};
  return random.Of(absl::MakeConstSpan(kStrange));
}

std::string Text(const LikelyValues& likely, Random& random) {
  if (!likely.texts.empty() && !random.Once(3)) return random.Of(absl::MakeConstSpan(likely.texts));
  const std::string strange[] = {
      "", "x", "../../x", "/", "%s%n", "\x1b[2J", std::string(3, '\0'), std::string(5000, 'a')};
  return random.Of(absl::MakeConstSpan(strange));
}

// Sets a field that is not of a message, or adds to it.
void SetPlain(Message& message, const FieldDescriptor& field, const LikelyValues& likely,
              Random& random) {
  const Reflection& reflection = *message.GetReflection();
  const bool adds = field.is_repeated();
  const auto set = [&](auto setter, auto adder, auto value) {
    adds ? (reflection.*adder)(&message, &field, value)
         : (reflection.*setter)(&message, &field, value);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::SetInt32, &Reflection::AddInt32,
                 static_cast<int32_t>(Number(likely, random)));
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Reflection::SetInt64, &Reflection::AddInt64, Number(likely, random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::SetUInt32, &Reflection::AddUInt32,
                 static_cast<uint32_t>(Number(likely, random)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::SetUInt64, &Reflection::AddUInt64,
                 static_cast<uint64_t>(Number(likely, random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Reflection::SetDouble, &Reflection::AddDouble, Fraction(random));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::SetFloat, &Reflection::AddFloat,
                 static_cast<float>(Fraction(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::SetBool, &Reflection::AddBool, random.Once(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Reflection::SetEnumValue, &Reflection::AddEnumValue,
                 static_cast<int>(Number(likely, random)));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = Text(likely, random);
      return adds ? reflection.AddString(&message, &field, text)
                  : reflection.SetString(&message, &field, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

void Fill(Message& message, const LikelyValues& likely, Random& random, int depth) {
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    // The last one that is set stays, of those that exclude each other.
    if (random.Once(2)) continue;
    const size_t times = field.is_repeated() ? random.Below(kMostRepeated) : 1;
    for (size_t time = 0; time < times; ++time) {
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        SetPlain(message, field, likely, random);
      } else if (depth < kMostDepth) {
        Message& inner = field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                             : *reflection.MutableMessage(&message, &field);
        Fill(inner, likely, random, depth + 1);
      }
    }
  }
}

}  // namespace

void FillAtRandom(Message& message, const LikelyValues& likely, Random& random) {
  Fill(message, likely, random, 1);
}

}  // namespace weft
