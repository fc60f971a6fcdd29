#include "launcher/service/message_json.h"

#include <google/protobuf/descriptor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json JsonOf(const Message& message);

// `index`: of a repeated field.
Json JsonOfField(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& of = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? of.GetRepeatedInt32(message, &field, index) : of.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? of.GetRepeatedInt64(message, &field, index) : of.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? of.GetRepeatedUInt32(message, &field, index) : of.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? of.GetRepeatedUInt64(message, &field, index) : of.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? of.GetRepeatedDouble(message, &field, index) : of.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return many ? of.GetRepeatedFloat(message, &field, index) : of.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? of.GetRepeatedBool(message, &field, index) : of.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (many ? of.GetRepeatedEnum(message, &field, index) : of.GetEnum(message, &field))
          ->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return many ? of.GetRepeatedString(message, &field, index) : of.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return JsonOf(many ? of.GetRepeatedMessage(message, &field, index)
                         : of.GetMessage(message, &field));
  }
  return nullptr;
}

Json JsonOfMap(const Message& message, const FieldDescriptor& field) {
  std::map<std::string, Json> sorted;  // a message has them in any order
  const Reflection& of = *message.GetReflection();
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  for (int i = 0; i < of.FieldSize(message, &field); ++i) {
    const Message& entry = of.GetRepeatedMessage(message, &field, i);
    const Json name = JsonOfField(entry, key, 0);
    sorted[name.is_string() ? name.get<std::string>() : name.dump()] = JsonOfField(entry, value, 0);
  }
  Json object = Json::object();
  for (auto& [name, each] : sorted) object[name] = std::move(each);
  return object;
}

Json JsonOf(const Message& message) {
  Json object = Json::object();
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map()) {
      object[field.name()] = JsonOfMap(message, field);
    } else if (field.is_repeated()) {
      Json& array = object[field.name()] = Json::array();
      const int size = message.GetReflection()->FieldSize(message, &field);
      for (int each = 0; each < size; ++each) array.push_back(JsonOfField(message, field, each));
    } else if (!field.has_presence() || message.GetReflection()->HasField(message, &field)) {
      object[field.name()] = JsonOfField(message, field, 0);
    }
  }
  return object;
}

}  // namespace

std::string MessageJson(const Message& message) {
  return JsonOf(message).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string ArrayJson(const std::vector<std::string>& elements) {
  if (elements.empty()) return "[]\n";
  return absl::StrCat("[\n", absl::StrJoin(elements, ",\n"), "\n]\n");
}

}  // namespace weft
