// SPDX-License-Identifier: Apache-2.0
// Every constraint of the model is broken once, each in a request that is otherwise good: it has to be named, alone, with its place.
#include "hyperpod/model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Model& own() {
  static const Model model = *Model::load_own();
  return model;
}

// A text for each pattern of the model, and one that it does not take.
const std::map<std::string, std::pair<std::string, std::string>, std::less<>> texts{
    {R"((?!\s*$).+)", {"alarm", "   "}},
    {R"([a-z]+\-[0-9a-z\-]+)", {"us-east-1a", "USEAST"}},
    {R"([a-z]{3}\d-az\d)", {"use1-az2", "use1az2"}},
    {R"([\x21-\x7E]+)", {"token", "to ken"}},
    {R"((?=.{1,255}$)([a-zA-Z0-9]([a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])?)*)", {"db.example.com", "-db"}},
    {R"([a-zA-Z0-9$_]+)", {"slurm_acct", "slurm-acct"}},
    {R"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:cluster/[a-z0-9]{12})", {"arn:aws:sagemaker:fairlead-1:111122223333:cluster/abcdef012345", "arn:aws:sagemaker:fairlead-1:111122223333:cluster/ABCDEF012345"}},
    {R"([a-z]{2}-[a-z]+-\d[a-z])", {"us-east-1a", "us_east_1a"}},
    {R"(((fs|fc)i?-[0-9a-f]{8,}\..{4,253}))", {"fs-0123456789.fsx.local", "nfs.example.com.local"}},
    {R"(/[a-zA-Z0-9._/-]+)", {"/fsx", "fsx"}},
    {R"([a-zA-Z0-9](-*[a-zA-Z0-9])*)", {"team-a", "-team"}},
    {R"(([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)", {"example.com/key", "example.com/"}},
    {R"((([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?)", {"value", "-value"}},
    {R"([\S\s]+)", {"on_create.sh", ""}},
    {R"(([A-Za-z0-9_-]{1,8}))", {"fsx", "f/x"}},
    {R"((arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:cluster/[a-z0-9]{12})|([a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}))", {"demo", "demo_1"}},
    {R"(eni-attach-[0-9a-f]{8}(?:[0-9a-f]{9})?)", {"eni-attach-01234567", "eni-attach-012345678"}},
    {R"(eni-[0-9a-f]{8}(?:[0-9a-f]{9})?)", {"eni-01234567", "eni-0123"}},
    {R"(i-[a-f0-9]{8}(?:[a-f0-9]{9})?)", {"i-0123456789abcdef0", "i-0123456789abcdef"}},
    {R"([a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])", {"node-0", "node-"}},
    {R"([a-z0-9]{12})", {"abcdef012345", "abcdef0123_5"}},
    {R"([a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?)", {"vision", "vision-"}},
    {R"(arn:aws[a-z\-]*:eks:[a-z0-9\-]*:[0-9]{12}:cluster\/[0-9A-Za-z][A-Za-z0-9\-_]{0,99})", {"arn:aws:eks:fairlead-1:111122223333:cluster/demo", "arn:aws:eks:fairlead-1:111122223333:demo"}},
    {R"([\p{L}\p{M}\p{Z}\p{S}\p{N}\p{P}]*)", {"für alle – ok", "bell\x07"}},
    {R"([a-zA-Z0-9](-*[a-zA-Z0-9]){0,62})", {"Quota-1", "Quota_1"}},
    {R"([a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12})", {"01234567-89ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg"}},
    {R"(ami-[0-9a-fA-F]{8,17}|default)", {"default", "latest"}},
    {R"([0-9]+\.[0-9]+\.[0-9]+)", {"1.0.0", "1.0"}},
    {R"(.+)", {"group", "a\nb"}},
    {R"([a-zA-Z0-9:/_-]*)", {"alias/key", "key key"}},
    {R"([a-zA-Z0-9\-]+)", {"demo", "d_mo"}},
    {R"(.*)", {"text", "a\nb"}},
    {R"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:reserved-capacity/.*)", {"arn:aws:sagemaker:fairlead-1:111122223333:reserved-capacity/x", "arn:aws:sagemaker:fairlead-1:1111:reserved-capacity/xxxxxxxxxxxxxxxxxx"}},
    {R"(arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:.+)", {"arn:aws:sagemaker:fairlead-1:111122223333:cluster/abcdef012345", "arn:aws:ec2:fairlead-1:111122223333:x"}},
    {R"(arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+)", {"arn:aws:iam::111122223333:role/worker", "arn:aws:iam::111122223333:user/worker"}},
    {R"((https|s3)://([^/]+)/?(.*))", {"s3://sagemaker-scripts/on", "ftp://scripts/on"}},
    {R"([-0-9a-zA-Z]+)", {"sg-01", "sg_01"}},
    {R"(([\p{L}\p{Z}\p{N}_.:/=+\-@]*))", {"Größe 1", "a*b"}},
    {R"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:training-plan/.*)", {"arn:aws:sagemaker:fairlead-1:111122223333:training-plan/p", "arn:aws:sagemaker:fairlead-1:1111:training-plan/pppppppppppppppppppppp"}},
    {R"([a-zA-Z0-9](-*[a-zA-Z0-9]){0,63})", {"plan", "plan_1"}},
    {R"([a-z0-9\-]+)", {"offering", "Offering"}},
    {R"(ml.[a-z0-9\-.]+)", {"ml.u-p6e-gb200x72", "u-p6e"}},
    {R"(/dev/(xvd[a-z]|sd[b-z]|sd[f-p][1-6]))", {"/dev/sdf", "/dev/sda"}},
    {R"(vol-[a-f0-9]{8}(?:[a-f0-9]{9})?)", {"vol-0123456789abcdef0", "vol-0123456789"}},
};

// A good value of a shape: with everything that may be given, or only what has to be.
Json example(const Model::Shape& shape, bool whole, int depth = 0) {
  using enum Model::Kind;
  switch (shape.kind) {
    case Structure: {
      Json out = Json::object();
      for (const Model::Member& member : shape.members) {
        if (!member.required && (!whole || depth > 12)) continue;
        if (shape.is_union && !out.members().empty()) break;
        out.set(member.name, example(own().shapes()[member.shape], whole, depth + 1));
      }
      if (shape.is_union && out.members().empty()) out.set(shape.members.front().name, example(own().shapes()[shape.members.front().shape], whole, depth + 1));
      return out;
    }
    case List: {
      Json out = Json::array();
      for (double i = 0; i < std::max(1.0, shape.least.value_or(0)); ++i) out.push(example(own().shapes()[shape.element], whole, depth + 1));
      return out;
    }
    case Map: return Json::object({{example(own().shapes()[shape.key], whole, depth + 1).string(), example(own().shapes()[shape.element], whole, depth + 1)}});
    case String: {
      if (!shape.values.empty()) return shape.values.front();
      std::string text = "x";
      if (!shape.pattern.empty()) {
        const auto found = texts.find(shape.pattern);
        if (found == texts.end()) {
          ADD_FAILURE() << shape.name << ": no text is known for " << shape.pattern;
          return "";
        }
        text = found->second.first;
      }
      while (shape.least && static_cast<double>(text.size()) < *shape.least) text += text.back();
      return text;
    }
    case Integer:
    case Long: return static_cast<std::int64_t>(std::max(1.0, shape.least.value_or(1)));
    case Float: return std::max(1.5, shape.least.value_or(1));
    case Boolean: return true;
    case Timestamp: return 1790000000;
  }
  return Json();
}

TEST(Model, AllOperationsAreThere) {
  EXPECT_EQ(own().operations().size(), 39U);
  EXPECT_GT(own().shapes().size(), 400U);
  EXPECT_EQ(own().operation("CreateCluster")->input, "CreateClusterRequest");
  EXPECT_EQ(own().operation("createcluster"), nullptr);
}

TEST(Model, WhatIsGoodPasses) {
  for (const auto& [name, operation] : own().operations())
    for (const bool whole : {false, true}) {
      const auto done = own().check(own().shape(operation.input), example(own().shape(operation.input), whole));
      EXPECT_TRUE(done) << name << ": " << done.error().message;
    }
}

// Walks over a good value and breaks each constraint once.
class Breaker {
 public:
  explicit Breaker(const Model::Shape& root) : root_(root), value_(example(root, true)) {}
  std::pair<int, int> run() {  // how many constraints were broken, and how many of these are lengths of texts
    walk(root_, value_, "");
    return {broken_, lengths_};
  }

 private:
  void expect(const std::string& path, const std::string& rule, const char* code = "ValidationException") {
    ++broken_;
    const auto done = own().check(root_, value_);
    ASSERT_FALSE(done) << root_.name << " " << path << ": " << rule;
    EXPECT_EQ(done.error().code, code) << path << ": " << done.error().message;
    if (done.error().code != "ValidationException") return;
    EXPECT_THAT(done.error().message, StartsWith("1 validation error detected: Value ")) << path;
    EXPECT_THAT(done.error().message, HasSubstr("at '" + path + "'")) << root_.name;
    EXPECT_THAT(done.error().message, HasSubstr(rule)) << path;
  }
  void with_length(Json& at, std::string wrong, const std::string& path, const std::string& rule) {
    Json before = std::exchange(at, Json(std::move(wrong)));
    ++broken_;
    ++lengths_;
    const auto done = own().check(root_, value_);
    ASSERT_FALSE(done) << root_.name << " " << path << ": " << rule;
    EXPECT_THAT(done.error().message, testing::AllOf(HasSubstr("at '" + path + "'"), HasSubstr(rule))) << root_.name;
    at = std::move(before);
  }
  void with(Json& at, Json wrong, const std::string& path, const std::string& rule, const char* code = "ValidationException") {
    Json before = std::exchange(at, std::move(wrong));
    expect(path, rule, code);
    at = std::move(before);
  }
  static std::string below(const std::string& path, std::string name) {
    name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
    return path.empty() ? name : path + "." + name;
  }

  void walk(const Model::Shape& shape, Json& at, const std::string& path) {
    using enum Model::Kind;
    switch (shape.kind) {
      case Structure: {
        with(at, "text", path, "", "SerializationException");
        at.set("NoSuchMember", 1);
        expect(below(path, "NoSuchMember"), shape.is_union ? "" : "be known");
        at.erase("NoSuchMember");
        for (const Model::Member& member : shape.members) {
          Json* part = at.find(member.name);
          if (part == nullptr) continue;
          if (member.required) with(*part, Json(), below(path, member.name), "must not be null");
          walk(own().shapes()[member.shape], *part, below(path, member.name));
        }
        break;
      }
      case List: {
        with(at, Json::object(), path, "", "SerializationException");
        if (shape.least.value_or(0) > 0) with(at, Json::array(), path, fmt::format("length greater than or equal to {}", *shape.least));
        if (shape.most && *shape.most <= 200) {
          Json many = Json::array();
          for (double i = 0; i <= *shape.most; ++i) many.push(example(own().shapes()[shape.element], false));
          with(at, std::move(many), path, fmt::format("length less than or equal to {}", *shape.most));
        }
        walk(own().shapes()[shape.element], at.items().front(), path + ".1.member");
        break;
      }
      case Map: with(at, "text", path, "", "SerializationException"); break;
      case String: {
        with(at, 5, path, "", "SerializationException");
        // Of a text that breaks its pattern, too, both are told.
        if (shape.values.empty() && shape.least && *shape.least >= 1) with_length(at, std::string(static_cast<std::size_t>(*shape.least) - 1, 'a'), path, fmt::format("length greater than or equal to {}", *shape.least));
        if (shape.values.empty() && shape.most && *shape.most <= 1 << 20) with_length(at, std::string(static_cast<std::size_t>(*shape.most) + 1, 'a'), path, fmt::format("length less than or equal to {}", *shape.most));
        if (!shape.values.empty()) with(at, "NoSuchValue", path, "satisfy enum value set: [" + shape.values.front());
        if (shape.pattern.empty()) break;
        const std::string& bad = texts.at(shape.pattern).second;
        // Of a text that breaks its length, too, both are told.
        const double size = static_cast<double>(bad.size());
        if ((!shape.least || size >= *shape.least) && (!shape.most || size <= *shape.most)) with(at, bad, path, "satisfy regular expression pattern: " + shape.pattern);
        break;
      }
      case Integer:
      case Long:
        with(at, "5", path, "", "SerializationException");
        with(at, 1.5, path, "", "SerializationException");
        [[fallthrough]];
      case Float:
        if (shape.least) with(at, *shape.least - 1, path, fmt::format("value greater than or equal to {}", *shape.least));
        if (shape.most) with(at, *shape.most + 1, path, fmt::format("value less than or equal to {}", *shape.most), *shape.most >= 2147483647 && shape.kind == Integer ? "SerializationException" : "ValidationException");
        break;
      case Boolean: with(at, "true", path, "", "SerializationException"); break;
      case Timestamp:
        with(at, "yesterday", path, "", "SerializationException");
        with(at, 1e15, path, "a time between");
        break;
    }
  }

  const Model::Shape& root_;
  Json value_;
  int broken_ = 0, lengths_ = 0;
};

TEST(Model, EachConstraintIsToldAlone) {
  int broken = 0, lengths = 0;
  for (const auto& [name, operation] : own().operations()) {
    const auto [here, of_lengths] = Breaker(own().shape(operation.input)).run();
    EXPECT_GT(here, 0) << name;
    broken += here;
    lengths += of_lengths;
  }
  EXPECT_GT(broken, 1000);
  EXPECT_GT(lengths, 100);
}

TEST(Model, AllThatIsWrongIsToldAtOnce) {
  const auto done = own().check(own().shape("DescribeClusterNodeRequest"), *kube::parse_json(R"({"ClusterName": "-", "NodeId": "x"})"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "2 validation errors detected: Value '-' at 'clusterName' failed to satisfy constraint: Member must satisfy regular expression pattern: " + own().shape("ClusterNameOrArn").pattern +
                "; Value 'x' at 'nodeId' failed to satisfy constraint: Member must satisfy regular expression pattern: i-[a-f0-9]{8}(?:[a-f0-9]{9})?");
  Json many = Json::object({{"ResourceArn", "arn:aws:sagemaker:fairlead-1:111122223333:cluster/abcdef012345"}, {"Tags", Json::array()}});
  for (int i = 0; i < 50; ++i) many.child("Tags").push(Json::object({{"Key", "*"}, {"Value", "*"}}));
  EXPECT_THAT(own().check(own().shape("AddTagsInput"), many).error().message, HasSubstr("100 validation errors detected"));
  EXPECT_LT(own().check(own().shape("AddTagsInput"), many).error().message.size(), 5000U);
}

TEST(Model, LengthsCountCharacters) {
  const Model::Shape& value = own().shape("TagValue");
  std::string text;
  for (int i = 0; i < 256; ++i) text += "ü";
  EXPECT_TRUE(own().check(value, text));
  EXPECT_FALSE(own().check(value, text + "ü"));
  // A value that is long is told in short, and never cut within a character.
  const std::string message = own().check(value, text + "*").error().message;
  EXPECT_TRUE(kube::parse_json("\"" + message.substr(0, 300) + "\"") || message.size() < 400) << message;
}

TEST(Model, RelaxedNamesAreStillNames) {
  const Model relaxed = *Model::load_own(Names::Relaxed);
  const auto fits = [](const Model& model, const char* shape, const std::string& text) { return model.check(model.shape(shape), text).has_value(); };
  for (const char* const shape : {"ClusterDnsName", "ClusterAvailabilityZone", "ClusterNodeId", "VolumeId"}) {
    EXPECT_FALSE(fits(own(), shape, "rack-7.example.com")) << shape;
    EXPECT_TRUE(fits(relaxed, shape, "rack-7.example.com")) << shape;
    EXPECT_FALSE(fits(relaxed, shape, "rack 7")) << shape;
    EXPECT_TRUE(fits(relaxed, shape, "nas01.lab")) << shape << " is not shorter than what AWS makes";
    EXPECT_FALSE(fits(relaxed, shape, "")) << shape;
  }
  EXPECT_FALSE(fits(relaxed, "ClusterName", "demo_1"));
}

TEST(Model, BadModelsAreNamed) {
  const auto why = [](const char* text) {
    const auto loaded = Model::load(text);
    return loaded ? std::string("loaded") : loaded.error().message;
  };
  EXPECT_THAT(why("{"), HasSubstr("service model"));
  EXPECT_THAT(why("{}"), HasSubstr("no shapes"));
  EXPECT_THAT(why(R"({"shapes": {"A": {"type": "blob"}}})"), HasSubstr("A has type \"blob\""));
  EXPECT_THAT(why(R"({"shapes": {"A": {"type": "list", "member": "B"}}})"), HasSubstr("A names shape \"B\""));
  EXPECT_THAT(why(R"({"shapes": {"A": {"type": "string", "pattern": "(?<x>a"}}})"), HasSubstr("A: pattern (?<x>a"));
  EXPECT_THAT(why(R"({"shapes": {"A": {"type": "structure", "members": {}}}, "operations": {"Do": {"output": "A"}}})"), HasSubstr("Do has no input"));
}

}  // namespace
}  // namespace fairlead::hyperpod
